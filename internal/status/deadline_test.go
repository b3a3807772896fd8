package status

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/status/metrics"
)

// A node that exceeds the deadline of a stage is degraded, without another event. The status names the operand.
func TestDeadlines(t *testing.T) {
	noGPU := func(e *env) { e.snapshot.Nodes[0].Object.Status.Allocatable = nil }
	tests := map[string]struct {
		spec   v1.DeadlinesSpec
		change func(*env)
		// want is the first node of status, as stage, operand, reason and message; ready if it is.
		want v1.NodeStatus
		// left is after how long the node is assessed again; 0 for never.
		left time.Duration
		// operand that is degraded, if one is.
		operand string
	}{
		"all works": {
			change: func(e *env) { e.setGPUReady(0, corev1.ConditionTrue, 9*time.Hour) },
			want:   v1.NodeStatus{Ready: true, Stage: v1.StageValidated},
		},
		"a driver in time": {
			change: func(e *env) { e.startPod(0, "driver"); e.setGPUReady(0, corev1.ConditionFalse, 29*time.Minute) },
			want: v1.NodeStatus{
				Stage:   v1.StageDriver,
				Operand: "driver",
				Reason:  "Starting",
				Message: "container main is not ready",
			},
			left: time.Minute,
		},
		"a driver that takes too long": {
			change: func(e *env) { e.startPod(0, "driver"); e.setGPUReady(0, corev1.ConditionFalse, 30*time.Minute) },
			want: v1.NodeStatus{
				Stage:   v1.StageDriver,
				Operand: "driver",
				Reason:  "Starting",
				Message: "not ready after 30m: container main is not ready",
			},
			operand: "driver",
		},
		"a driver that has another deadline": {
			spec:   v1.DeadlinesSpec{Driver: "90s"},
			change: func(e *env) { e.startPod(0, "driver"); e.setGPUReady(0, corev1.ConditionFalse, 2*time.Minute) },
			want: v1.NodeStatus{
				Stage:   v1.StageDriver,
				Operand: "driver",
				Reason:  "Starting",
				Message: "not ready after 1m30s: container main is not ready",
			},
			operand: "driver",
		},
		"a driver that has none": {
			spec:   v1.DeadlinesSpec{Driver: "0s"},
			change: func(e *env) { e.startPod(0, "driver"); e.setGPUReady(0, corev1.ConditionFalse, 1000*time.Hour) },
			want: v1.NodeStatus{
				Stage:   v1.StageDriver,
				Operand: "driver",
				Reason:  "Starting",
				Message: "container main is not ready",
			},
		},
		"a stage begins when the previous one is reached": {
			change: func(e *env) {
				e.startPod(0, "container-toolkit")
				e.setPodReadySince("driver", 4*time.Minute)
				e.setGPUReady(0, corev1.ConditionFalse, 25*time.Minute)
			},
			want: v1.NodeStatus{
				Stage:   v1.StageToolkit,
				Operand: "container-toolkit",
				Reason:  "Starting",
				Message: "container main is not ready",
			},
			left: 6 * time.Minute,
		},
		"a stage that takes too long": {
			change: func(e *env) {
				e.startPod(0, "container-toolkit")
				e.setPodReadySince("driver", 11*time.Minute)
				e.setGPUReady(0, corev1.ConditionFalse, 25*time.Minute)
			},
			want: v1.NodeStatus{
				Stage:   v1.StageToolkit,
				Operand: "container-toolkit",
				Reason:  "Starting",
				Message: "not ready after 10m: container main is not ready",
			},
			operand: "container-toolkit",
		},
		"what was ready before the node was not": {
			change: func(e *env) {
				e.startPod(0, "container-toolkit")
				e.setPodReadySince("driver", 99*time.Hour)
				e.setGPUReady(0, corev1.ConditionFalse, 3*time.Minute)
			},
			want: v1.NodeStatus{
				Stage:   v1.StageToolkit,
				Operand: "container-toolkit",
				Reason:  "Starting",
				Message: "container main is not ready",
			},
			left: 7 * time.Minute,
		},
		"GPUs that cannot be allocated": {
			change: func(e *env) {
				noGPU(e)
				e.setPodReadySince("device-plugin", 5*time.Minute)
				e.setGPUReady(0, corev1.ConditionFalse, 25*time.Minute)
			},
			want: v1.NodeStatus{
				Stage:   v1.StageAllocatable,
				Operand: "device-plugin",
				Reason:  "NotAllocatable",
				Message: "not ready after 5m: the node has no allocatable GPU",
			},
			operand: "device-plugin",
		},
		"GPUs that are not allocatable yet": {
			change: func(e *env) {
				noGPU(e)
				e.setPodReadySince("device-plugin", 4*time.Minute)
				e.setGPUReady(0, corev1.ConditionFalse, 25*time.Minute)
			},
			want: v1.NodeStatus{
				Stage:   v1.StageAllocatable,
				Operand: "device-plugin",
				Reason:  "NotAllocatable",
				Message: "the node has no allocatable GPU",
			},
			left: time.Minute,
		},
		"a kubelet that is not ready": {
			change: func(e *env) {
				e.snapshot.Nodes[0].Object.Status.Conditions[0] = corev1.NodeCondition{
					Type:   corev1.NodeReady,
					Status: corev1.ConditionFalse,
					Reason: "KubeletNotReady",
				}
				e.setGPUReady(0, corev1.ConditionFalse, 10*time.Minute)
			},
			want: v1.NodeStatus{
				Stage:   v1.StageDiscovered,
				Reason:  "NodeNotReady",
				Message: "not ready after 10m: the node is not ready: KubeletNotReady",
			},
		},
		"a node that has just become not ready": {
			change: func(e *env) { e.startPod(0, "driver"); e.setGPUReady(0, corev1.ConditionTrue, 99*time.Hour) },
			want: v1.NodeStatus{
				Stage:   v1.StageDriver,
				Operand: "driver",
				Reason:  "Starting",
				Message: "container main is not ready",
			},
			left: 30 * time.Minute,
		},
		"a node without the condition GPUReady": {
			change: func(e *env) { e.startPod(0, "driver") },
			want: v1.NodeStatus{
				Stage:   v1.StageDriver,
				Operand: "driver",
				Reason:  "Starting",
				Message: "container main is not ready",
			},
			left: 30 * time.Minute,
		},
		"a node that is paused": {
			change: func(e *env) {
				e.setLabel(0, "nvidia.com/gpu.deploy.driver", "paused-for-driver-upgrade")
				e.setGPUReady(0, corev1.ConditionFalse, 99*time.Hour)
			},
			want: v1.NodeStatus{
				Stage:   v1.StageDriver,
				Operand: "driver",
				Reason:  "OperandPaused",
				Message: `label nvidia.com/gpu.deploy.driver is "paused-for-driver-upgrade"`,
			},
		},
		"an auxiliary operand": {
			change: func(e *env) {
				e.startPod(0, "gpu-feature-discovery")
				e.setPodReadySince("gpu-feature-discovery", 15*time.Minute)
				e.setGPUReady(0, corev1.ConditionTrue, 99*time.Hour)
			},
			want:    v1.NodeStatus{Ready: true, Stage: v1.StageValidated},
			operand: "gpu-feature-discovery",
		},
		"an auxiliary operand, in time": {
			change: func(e *env) {
				e.startPod(0, "gpu-feature-discovery")
				e.setPodReadySince("gpu-feature-discovery", 99*time.Hour)
				e.setGPUReady(0, corev1.ConditionTrue, 14*time.Minute)
			},
			want: v1.NodeStatus{Ready: true, Stage: v1.StageValidated},
			left: time.Minute,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			e := newEnv(t, 1)
			e.spec.Deadlines = &test.spec
			test.change(e)
			in := e.input()
			status, until := Compute(&v1.ClusterPolicy{Spec: e.spec}, in), in.View.Nodes[0].Latest.Until
			got := status.Nodes[0]
			test.want.Name, test.want.Pool = "node-00000", "ubuntu24.04-amd64"
			got.Since = nil
			g.Expect(got).To(Equal(test.want))
			if test.left == 0 {
				g.Expect(until).To(BeZero())
			} else {
				g.Expect(until).To(Equal(now.Add(test.left)))
			}
			late := test.operand != "" || strings.HasPrefix(test.want.Message, "not ready after ")
			degraded := map[bool]metav1.ConditionStatus{true: metav1.ConditionTrue, false: metav1.ConditionFalse}[late]
			g.Expect(condition(status, v1.ConditionDegraded).Status).To(Equal(degraded))
			failing := []string{}
			for _, o := range status.Operands {
				if o.State == v1.OperandDegraded {
					failing = append(failing, o.Name)
				}
			}
			g.Expect(strings.Join(failing, " ")).To(Equal(test.operand))
		})
	}
}

// A missing pod is reported with the cause and the DaemonSet.
func TestMissingPods(t *testing.T) {
	taint := corev1.Taint{Key: "team", Value: "ml", Effect: corev1.TaintEffectNoSchedule}
	quota := map[string]assess.PodFailure{"driver": {Reason: v1.ReasonQuotaExceeded, Message: "exceeded quota: small"}}
	tests := map[string]struct {
		failures map[string]assess.PodFailure
		change   func(*env)
		reason   string
		message  string
		degraded bool
		operand  string
	}{
		"not made yet": {
			reason:  "PodMissing",
			message: "DaemonSet driver has not created a pod on the node yet",
			operand: "ready on 1 of 2 nodes",
		},
		"kept off by a taint": {
			change: func(e *env) {
				e.snapshot.Nodes[0].Object.Spec.Taints = []corev1.Taint{taint}
				e.snapshot.DaemonSets["driver"].Status.DesiredNumberScheduled = 1
			},
			reason: "UntoleratedTaint",
			message: "taint team=ml:NoSchedule is not tolerated by DaemonSet driver: " +
				"add a toleration to spec.daemonsets.tolerations",
			operand: "not scheduled on 1 of 2 nodes: node-00000 (UntoleratedTaint)",
		},
		"refused by a quota": {
			failures: quota,
			reason:   "QuotaExceeded",
			message:  "DaemonSet driver cannot create its pod: exceeded quota: small",
			degraded: true,
			operand:  "fails on 1 of 2 nodes: node-00000 (QuotaExceeded)",
		},
		"kept off by a taint, where a quota refuses others": {
			failures: quota, change: func(e *env) { e.snapshot.Nodes[0].Object.Spec.Taints = []corev1.Taint{taint} },
			reason: "UntoleratedTaint",
			message: "taint team=ml:NoSchedule is not tolerated by DaemonSet driver: " +
				"add a toleration to spec.daemonsets.tolerations",
			operand: "ready on 1 of 2 nodes",
		},
		"a quota refuses pods of another": {
			failures: map[string]assess.PodFailure{"device-plugin": quota["driver"]},
			reason:   "PodMissing", message: "DaemonSet driver has not created a pod on the node yet",
			operand: "ready on 1 of 2 nodes",
		},
		"not selected yet": {
			change: func(e *env) {
				e.snapshot.DaemonSets["driver"].Spec.Template.Spec.NodeSelector = map[string]string{
					"nvidia.com/gpu.deploy.driver": "true",
				}
			},
			reason: "PodMissing", message: "no DaemonSet of driver selects the node yet", operand: "ready on 1 of 2 nodes",
		},
		"without a DaemonSet": {
			change:  func(e *env) { delete(e.snapshot.DaemonSets, "driver") },
			reason:  "PodMissing",
			message: "driver has no pod on the node yet",
			operand: "its DaemonSets are being created",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			e := newEnv(t, 2)
			delete(e.snapshot.Pods["node-00000"], "driver")
			if test.change != nil {
				test.change(e)
			}
			e.createFailures = test.failures
			in := e.input()
			status := Compute(&v1.ClusterPolicy{}, in)
			g.Expect(status.Nodes[0]).To(And(
				HaveField("Name", "node-00000"), HaveField("Stage", v1.StageDriver), HaveField("Operand", "driver"),
				HaveField("Reason", test.reason), HaveField("Message", test.message),
			))
			g.Expect(status.Nodes[1]).To(HaveField("Ready", true))
			state := metrics.Progressing
			if test.degraded {
				state = metrics.Degraded
			}
			g.Expect(CountNodes(in.View)).To(Equal(map[metrics.StageState]int{
				{Stage: v1.StageDriver, State: state}: 1, {Stage: v1.StageValidated, State: metrics.Ready}: 1,
			}))
			g.Expect(operandOf(t, status, "driver")).To(HaveField("Message", test.operand))
		})
	}
}
