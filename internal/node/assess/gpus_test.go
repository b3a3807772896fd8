package assess_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

// gpuNode is a node whose kubelet reports and that advertises these GPUs.
func gpuNode(capacity, allocatable map[corev1.ResourceName]int64) *corev1.Node {
	list := func(counts map[corev1.ResourceName]int64) corev1.ResourceList {
		resources := corev1.ResourceList{}
		for name, count := range counts {
			resources[name] = *resource.NewQuantity(count, resource.DecimalSI)
		}
		return resources
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{}},
		Status: corev1.NodeStatus{
			Capacity: list(capacity), Allocatable: list(allocatable),
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
}

// A node with too few GPUs is not ready, and yet its GPUs are usable for upgrades and start-up taints.
func TestANodeThatHasLostGPUs(t *testing.T) {
	const lost = "7 of 8 GPUs usable: the device plugin reports 1 of 8 nvidia.com/gpu as unhealthy"
	type want struct {
		ready, usable      bool
		stage              v1.Stage
		reason, conditions string
	}
	tests := map[string]struct {
		usable int64
		health *v1.HealthSpec
		driver readiness.State
		want   want
	}{
		"none is lost": {usable: 8, want: want{true, true, v1.StageValidated, "", "GPUReady: a: GPUs can be used"}},
		"one is lost": {usable: 7, want: want{
			false, true, v1.StageAllocatable, "GPUsUnhealthy", "GPUsUnhealthy: a: stage Allocatable: " + lost,
		}},
		"one may be lost": {
			usable: 7, health: &v1.HealthSpec{MinUsable: new(intstr.FromInt32(7))},
			want: want{true, true, v1.StageValidated, "GPUsUnhealthy", "GPUsUnhealthy: a: GPUs can be used; " + lost},
		},
		"another failure takes precedence": {usable: 7, driver: readiness.Failed, want: want{
			false, false, v1.StageDriver, "CrashLoopBackOff",
			"CrashLoopBackOff: a: stage Driver, operand driver: container main: CrashLoopBackOff, exit code 1: boom",
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := assess.Node(assess.Input{
				NodePlan: plan.NodePlan{
					Spec:             effective.Of(v1.ClusterPolicySpec{Health: test.health}),
					Essential:        []plan.OperandOnNode{{Operand: "driver", Stage: v1.StageDriver, Expectation: plan.Expected}},
					NeedsAllocatable: true,
				},
				Node: gpuNode(map[corev1.ResourceName]int64{"nvidia.com/gpu": 8},
					map[corev1.ResourceName]int64{"nvidia.com/gpu": test.usable}),
				Pods: assess.Pods{"driver": driverPod(test.driver)}, Now: begin,
			})
			condition := got.Condition("a")
			found := want{got.Ready(), got.Usable, got.Stage, got.Reason, condition.Reason + ": " + condition.Message}
			if diff := cmp.Diff(test.want, found, cmp.AllowUnexported(want{})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			left := int(test.usable)
			if test.want.stage == v1.StageDriver {
				left = 0
			}
			if got.GPUs.Total != 8 || got.GPUs.Usable != left {
				t.Errorf("got %+v", got.GPUs)
			}
		})
	}
}

// A MIG layout is reported while it is applied, if it fails, and if the node does not advertise its devices.
func TestTheMIGLayout(t *testing.T) {
	type counts map[corev1.ResourceName]int64
	type want struct {
		state           readiness.State
		reason, message string
		usable          bool
	}
	ready := want{usable: true}
	mixed, single := v1.MIGStrategyMixed, v1.MIGStrategySingle
	devices := counts{"nvidia.com/mig-1g.10gb": 56}
	mismatch := func(message string) want {
		return want{readiness.Progressing, v1.ReasonMIGConfigMismatch, message, true}
	}
	tests := map[string]struct {
		layout, state string
		unknown       string
		labels        map[string]string
		strategy      v1.MIGStrategy
		advertised    counts
		left          counts
		paused        bool
		unmanaged     bool
		since         time.Duration
		want          want
	}{
		"no layout":            {advertised: counts{"nvidia.com/gpu": 8}, want: ready},
		"not begun":            {layout: "all-1g.10gb", want: ready},
		"applied":              {layout: "all-1g.10gb", state: "success", strategy: mixed, advertised: devices, want: ready},
		"a layout of the user": {layout: "halves", state: "success", strategy: mixed, want: ready},
		"applied, devices are shared": {
			layout: "all-1g.10gb", state: "success", strategy: mixed,
			advertised: counts{"nvidia.com/mig-1g.10gb.shared": 112}, want: ready,
		},
		"begun, nothing is paused yet": {layout: "all-1g.10gb", state: "pending", want: ready},
		"being applied": {layout: "all-1g.10gb", state: "pending", paused: true, want: want{
			state: readiness.Progressing, reason: v1.ReasonMIGConfigPending,
			message: "MIG layout all-1g.10gb is being applied",
		}},
		"the node reboots": {layout: "all-1g.10gb", state: "rebooting", paused: true, want: want{
			state: readiness.Progressing, reason: v1.ReasonMIGConfigPending,
			message: "MIG layout all-1g.10gb is being applied; the node reboots for it",
		}},
		"being applied for too long": {
			layout: "all-1g.10gb", state: "pending", paused: true, since: time.Hour, want: want{
				state: readiness.Failed, reason: v1.ReasonMIGConfigPending,
				message: "not ready after 10m: MIG layout all-1g.10gb is being applied",
			}},
		"the label is removed while it is applied": {state: "pending", paused: true, since: time.Hour, want: want{
			state: readiness.Failed, reason: v1.ReasonMIGConfigPending,
			message: "not ready after 10m: a MIG layout is being applied, and the label nvidia.com/mig.config was removed",
		}},
		"the MIG manager is taken off the node meanwhile": {
			layout: "all-1g.10gb", state: "pending", paused: true, unmanaged: true, since: time.Hour, want: want{
				state: readiness.Failed, reason: v1.ReasonMIGConfigPending,
				message: "not ready after 10m: MIG layout all-1g.10gb is being applied, but no MIG manager is to run on the node",
			}},
		"without a MIG manager, and nothing is paused": {
			layout: "all-1g.10gb", state: "pending", unmanaged: true, want: ready,
		},
		"failed, and the label is removed": {state: "failed", want: ready},
		"failed": {layout: "all-9g.99gb", state: "failed", want: want{
			readiness.Failed, v1.ReasonMIGConfigFailed,
			"MIG layout all-9g.99gb could not be applied: see kubectl -n n logs nvidia-mig-manager-x", true,
		}},
		"unknown": {layout: "all-9g.99gb", unknown: "MIG layout all-9g.99gb is unknown", want: want{
			readiness.Failed, v1.ReasonMIGConfigFailed, "MIG layout all-9g.99gb is unknown", true,
		}},
		"unknown, requested while another one is applied": {
			layout: "all-9g.99gb", state: "pending", unknown: "MIG layout all-9g.99gb is unknown", paused: true,
			since: time.Hour, want: want{
				state: readiness.Failed, reason: v1.ReasonMIGConfigPending,
				message: "not ready after 10m: MIG layout all-9g.99gb is being applied",
			},
		},
		"unknown since it was applied": {
			layout: "halves", state: "success", unknown: "MIG layout halves is unknown", strategy: mixed, want: ready,
		},
		"failed, and the operands are still paused": {layout: "all-9g.99gb", state: "failed", paused: true, want: want{
			readiness.Failed, v1.ReasonMIGConfigFailed,
			"MIG layout all-9g.99gb could not be applied: see kubectl -n n logs nvidia-mig-manager-x", false,
		}},
		"strategy mixed, the device plugin advertises whole GPUs": {
			layout: "all-1g.10gb", state: "success", strategy: mixed,
			want: mismatch("MIG layout all-1g.10gb is applied, but the node advertises no nvidia.com/mig-1g.10gb"),
		},
		"the strategy is in the device plugin's ConfigMap": {
			layout: "all-1g.10gb", state: "success", strategy: single,
			labels:     map[string]string{"nvidia.com/mig.strategy": "mixed"},
			advertised: devices, want: ready,
		},
		"no strategy": {
			layout: "all-1g.10gb", state: "success", want: want{
				readiness.Ready, v1.ReasonMIGConfigMismatch,
				"MIG layout all-1g.10gb is applied, but no MIG device is advertised: " +
					"set spec.mig.strategy to mixed for nvidia.com/mig-1g.10gb, or to single", true,
			},
		},
		"strategy single": {
			layout: "all-1g.10gb", state: "success", strategy: single,
			labels: map[string]string{"nvidia.com/gpu.product": "NVIDIA-H100-MIG-1g.10gb"}, want: ready,
		},
		"strategy single, GFD reports whole GPUs": {
			layout: "all-1g.10gb", state: "success", strategy: single,
			labels: map[string]string{"nvidia.com/gpu.product": "NVIDIA-H100"},
			want:   mismatch("MIG layout all-1g.10gb is applied, but the label nvidia.com/gpu.product does not show it"),
		},
		"disabled": {layout: "all-disabled", state: "success", strategy: mixed, want: ready},
		"disabled, the kubelet keeps the capacity of the devices": {
			layout: "all-disabled", state: "success", strategy: mixed,
			advertised: counts{"nvidia.com/gpu": 8, "nvidia.com/mig-1g.10gb": 56},
			left:       counts{"nvidia.com/gpu": 8}, want: ready,
		},
		"disabled, devices are left": {
			layout: "all-disabled", state: "success", strategy: mixed, advertised: devices,
			want: mismatch("MIG is disabled, but the node still advertises nvidia.com/mig-1g.10gb"),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if test.advertised == nil {
				test.advertised = counts{"nvidia.com/gpu": 8}
			}
			if test.left == nil {
				test.left = test.advertised
			}
			node := gpuNode(test.advertised, test.left)
			node.Labels = map[string]string{"nvidia.com/mig.config": test.layout, "nvidia.com/mig.config.state": test.state}
			for key, value := range test.labels {
				node.Labels[key] = value
			}
			plugin := plan.OperandOnNode{Operand: "device-plugin", Stage: v1.StageDevicePlugin, Expectation: plan.Expected}
			if test.paused {
				plugin.Expectation, plugin.Reason = plan.PausedByLabel, v1.ReasonOperandPaused
				node.Labels["nvidia.com/gpu.deploy.device-plugin"] = "paused-for-mig-change"
			}
			manager := driverPod(readiness.Ready)
			manager.Namespace, manager.Name = "n", "nvidia-mig-manager-x"
			nodePlan := plan.NodePlan{
				Spec:      effective.Of(v1.ClusterPolicySpec{MIG: &v1.MIGSpec{Strategy: test.strategy}}),
				Essential: []plan.OperandOnNode{plugin}, NeedsAllocatable: true,
				Auxiliary:   []plan.OperandOnNode{{Operand: "mig-manager", Expectation: plan.Expected}},
				Partitioner: "mig-manager", MIGLayout: test.unknown,
			}
			if test.unmanaged {
				nodePlan.Auxiliary, nodePlan.Partitioner = nil, ""
			}
			got := assess.Node(assess.Input{
				NodePlan: nodePlan,
				Node:     node, Pods: assess.Pods{"device-plugin": driverPod(readiness.Ready), "mig-manager": manager},
				Now: begin, Previous: assess.ReadySince{Since: begin.Add(-test.since)},
			})
			found := want{got.State, got.Reason, got.Message, got.Usable}
			if diff := cmp.Diff(test.want, found, cmp.AllowUnexported(want{})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if got.IsMIGOverdue() != (test.since > 0) {
				t.Errorf("overdue: %t", got.IsMIGOverdue())
			}
			operand := got.Operands["mig-manager"]
			if failing := test.want.state != readiness.Ready && !test.unmanaged; failing && operand.Reason != test.want.reason {
				t.Errorf("operand: %+v", operand)
			}
		})
	}
}

// A label that selects no configuration is the cause of a device plugin that does not start, and is reported on a ready
// node, too.
func TestAConfigurationThatIsNotUsed(t *testing.T) {
	const problem = "label nvidia.com/device-plugin.config=x: ConfigMap c has no such key, only a, b"
	const stage = "a: stage DevicePlugin, operand device-plugin: "
	for name, test := range map[string]struct {
		plugin readiness.State
		fatal  bool
		want   string
	}{
		"the plugin does not start": {readiness.Failed, true, "PluginConfigInvalid: " + stage + problem},
		"the plugin does not start for another reason": {
			readiness.Failed, false, "CrashLoopBackOff: " + stage + "container main: CrashLoopBackOff, exit code 1: boom",
		},
		"the plugin works": {readiness.Ready, true, "PluginConfigInvalid: a: GPUs can be used; " + problem},
	} {
		t.Run(name, func(t *testing.T) {
			plugin := plan.OperandOnNode{Operand: "device-plugin", Stage: v1.StageDevicePlugin, Expectation: plan.Expected}
			gpus := map[corev1.ResourceName]int64{"nvidia.com/gpu": 8}
			got := assess.Node(assess.Input{
				NodePlan: plan.NodePlan{
					Spec: effective.Of(v1.ClusterPolicySpec{}), Essential: []plan.OperandOnNode{plugin}, NeedsAllocatable: true,
					PluginConfig: operand.ConfigProblem{Message: problem, Fatal: test.fatal},
				},
				Node: gpuNode(gpus, gpus), Pods: assess.Pods{"device-plugin": driverPod(test.plugin)}, Now: begin,
			})
			condition := got.Condition("a")
			if found := condition.Reason + ": " + condition.Message; found != test.want {
				t.Errorf("got %q", found)
			}
			if got.Ready() != (test.plugin == readiness.Ready) {
				t.Errorf("ready: %t", got.Ready())
			}
		})
	}
}
