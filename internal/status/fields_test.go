package status

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/policy/fieldnotes"
	"github.com/clusterpolicy/gpu-operator/internal/stack/apply"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

// each has a field of each condition, and of each reason, by its name in the condition.
var each = map[string]v1.ClusterPolicySpec{
	"spec.gds.enabled": {
		GDS: &v1.GDSSpec{Enabled: new(true)}, Driver: &v1.DriverSpec{Enabled: new(false)},
	},
	"spec.sandboxWorkloads.enabled": {SandboxWorkloads: &v1.SandboxWorkloadsSpec{Enabled: new(true)}},
	"spec.operator.defaultRuntime":  {Operator: &v1.OperatorSpec{DefaultRuntime: "docker"}},
	"spec.sandboxWorkloads.defaultWorkload": {
		SandboxWorkloads: &v1.SandboxWorkloadsSpec{DefaultWorkload: v1.WorkloadVMVGPU},
	},
	"spec.driver.licensingConfig.configMapName": {
		Driver: &v1.DriverSpec{LicensingConfig: &v1.DriverLicensingConfigSpec{ConfigMapName: "licence"}},
	},
}

func TestFieldConditions(t *testing.T) {
	for name, spec := range each {
		t.Run(name, func(t *testing.T) {
			conditionType, reason, notes := conditionOf(spec)
			// Where no upgrade is possible, upgrades must be on, which is reported, too.
			if !slices.ContainsFunc(notes, func(note string) bool { return strings.HasPrefix(note, name+": ") }) {
				t.Fatalf("the notes are %q", notes)
			}
			e := newEnv(t, 1)
			e.spec = spec
			status := e.status()
			got := condition(status, conditionType)
			want := strings.Join(notes, "; ")
			if got.Status != "True" || got.Reason != reason || got.Message != want || got.ObservedGeneration != 7 {
				t.Errorf("%+v, want True: %s", got, want)
			}
			if again := e.status(status); condition(again, conditionType) != condition(status, conditionType) {
				t.Errorf("the next pass reports %+v", condition(again, conditionType))
			}
			if status.State != v1.StateReady {
				t.Errorf("the policy is not ready: %+v", ready(status))
			}
		})
	}
}

// conditionOf returns the condition that reports the only noted field of a spec.
func conditionOf(spec v1.ClusterPolicySpec) (conditionType, reason string, notes []string) {
	unsupported, doubtful := fieldnotes.Unsupported(spec), fieldnotes.Doubtful(spec)
	switch {
	case len(unsupported) > 0:
		return v1.ConditionUnsupportedFields, v1.ReasonNotSupportedYet, append(unsupported, doubtful...)
	case len(doubtful) > 0:
		return v1.ConditionUnsupportedFields, v1.ReasonDoubtfulFields, doubtful
	}
	return v1.ConditionDeprecatedFields, v1.ReasonDeprecated, fieldnotes.Deprecated(spec)
}

// A ConfigMap with several configurations and no default is reported, also that of a node pool.
func TestNoDefaultAmongSeveralConfigurations(t *testing.T) {
	pool := v1.NodePoolSpec{
		Name: "a", NodeSelector: v1.NodePoolSelector{"team": "a"},
		DevicePlugin: &v1.NodePoolDevicePluginSpec{Config: &v1.NodePoolPluginConfigSpec{Name: "other"}},
	}
	spec := v1.ClusterPolicySpec{
		NodePools:    []v1.NodePoolSpec{pool},
		DevicePlugin: &v1.DevicePluginSpec{Config: &v1.DevicePluginConfigSpec{Name: "shared"}},
	}
	contents := map[operand.Reference]operand.Content{
		{Kind: operand.ConfigMap, Name: "shared"}: {Keys: []string{"a", "b", "c"}},
		{Kind: operand.ConfigMap, Name: "other"}:  {Keys: []string{"a", "b"}},
	}
	decisions := plan.Decide(nil, operand.Input{Spec: effective.Of(spec), Contents: contents})
	status := Compute(&v1.ClusterPolicy{Spec: spec}, Input{Plan: plan.Plan{Decisions: decisions}})
	got := condition(status, v1.ConditionUnsupportedFields)
	const unset = "spec.devicePlugin.config.default: is not set, and none of the "
	if got.Status != "True" || got.Reason != v1.ReasonDoubtfulFields ||
		!strings.HasPrefix(got.Message, unset+"3 keys of ConfigMap shared") ||
		!strings.Contains(got.Message, "; node pool a: "+unset+"2 keys of ConfigMap other") {
		t.Errorf("%+v", got)
	}
	spec.DevicePlugin.Enabled = new(false)
	if notes := plan.Decide(nil, operand.Input{Spec: effective.Of(spec), Contents: contents}).Doubtful(); notes != nil {
		t.Errorf("without the device plugin: %q", notes)
	}
}

func TestFieldConditionsOfUnusedFields(t *testing.T) {
	for name, spec := range map[string]v1.ClusterPolicySpec{
		"nothing": {},
		"blocks that are turned off, as NVIDIA's chart writes them": {
			KataManager:      &v1.KataManagerSpec{Enabled: new(false), Config: &v1.KataManagerConfigSpec{}},
			PSP:              &v1.PSPSpec{Enabled: new(false)},
			SandboxWorkloads: &v1.SandboxWorkloadsSpec{Enabled: new(false), DefaultWorkload: "container", Mode: "kubevirt"},
			Operator:         &v1.OperatorSpec{InitContainer: &v1.ImageSpec{}},
			VFIOManager:      &v1.VFIOManagerSpec{Enabled: new(true)},
			VGPUDeviceManager: &v1.VGPUDeviceManagerSpec{
				Enabled: new(true), Config: &v1.VGPUDevicesConfigSpec{Default: "default"},
			},
			SandboxDevicePlugin:     &v1.SandboxDevicePluginSpec{Enabled: new(true)},
			KataSandboxDevicePlugin: &v1.KataSandboxDevicePluginSpec{Enabled: new(true)},
			CCManager:               &v1.CCManagerSpec{Enabled: new(true), DefaultMode: "on"},
		},
		"upgrades of no driver": {Driver: &v1.DriverSpec{
			Enabled: new(false), UpgradePolicy: &v1.DriverUpgradePolicySpec{AutoUpgrade: new(true)},
		}},
		"upgrades that are off": {
			Driver: &v1.DriverSpec{UpgradePolicy: &v1.DriverUpgradePolicySpec{AutoUpgrade: new(false)}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, 1)
			e.spec = spec
			status := e.status()
			for _, conditionType := range []string{v1.ConditionUnsupportedFields, v1.ConditionDeprecatedFields} {
				got := condition(status, conditionType)
				if got.Status != "False" || got.Reason != v1.ReasonNone || got.Message != "" {
					t.Errorf("%+v", got)
				}
			}
		})
	}
}

// Ignored variables of the operator are reported beside the fields, and leave the policy ready.
func TestIgnoredVariables(t *testing.T) {
	const variable = "the operator's variable DCGM_IMAGE is ignored: ..."
	e := newEnv(t, 1)
	e.spec = v1.ClusterPolicySpec{SandboxWorkloads: &v1.SandboxWorkloadsSpec{Enabled: new(true)}}
	in := e.input()
	in.IgnoredVariables = []string{variable}
	status := Compute(&v1.ClusterPolicy{Spec: e.spec}, in)
	want := strings.Join(append(fieldnotes.Unsupported(e.spec), variable), "; ")
	got := condition(status, v1.ConditionUnsupportedFields)
	if got.Status != metav1.ConditionTrue || got.Reason != v1.ReasonNotSupportedYet || got.Message != want {
		t.Errorf("%+v, want the message %q", got, want)
	}
	if status.State != v1.StateReady {
		t.Errorf("the policy is not ready: %+v", ready(status))
	}
}

// What the chart notes of its values, and what the operator notes of the cluster, are reported beside the fields.
func TestNotesBesideFields(t *testing.T) {
	e := newEnv(t, 1)
	in := e.input()
	in.Notes = []string{"Kubernetes v1.38.0 is newer"}
	policy := &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		"nvidia.com/gpu-operator.chart-notes": "a: unknown\n\n  draDriver: it belongs elsewhere.\n",
	}}}
	const want = "Kubernetes v1.38.0 is newer; values of the chart: a: unknown; " +
		"values of the chart: draDriver: it belongs elsewhere"
	status := Compute(policy, in)
	if got := condition(status, v1.ConditionUnsupportedFields); got.Status != metav1.ConditionTrue ||
		got.Reason != v1.ReasonDoubtfulFields || got.Message != want {
		t.Errorf("%+v, want the message %q", got, want)
	}
	if status.State != v1.StateReady {
		t.Errorf("the policy is not ready: %+v", ready(status))
	}
}

// A failed pass reports the fields, too, and a long message is truncated.
func TestFieldConditionsAfterAFailedPass(t *testing.T) {
	e := newEnv(t, 1)
	e.spec = v1.ClusterPolicySpec{
		Operator: &v1.OperatorSpec{
			DefaultRuntime: "docker",
			Labels:         v1.Labels{"a": "b"},
			Annotations:    v1.Annotations{"a": "b"},
			InitContainer:  &v1.ImageSpec{Image: "a"},
		},
		Driver: &v1.DriverSpec{
			UseOpenKernelModules: new(true),
			LicensingConfig:      &v1.DriverLicensingConfigSpec{ConfigMapName: "a"},
		},
		DCGM: &v1.DCGMSpec{HostPort: 1}, CDI: &v1.CDISpec{Default: new(true)}, PSP: &v1.PSPSpec{Enabled: new(true)},
		KataManager: &v1.KataManagerSpec{Enabled: new(true)},
	}
	policy := &v1.ClusterPolicy{Spec: e.spec}
	status := Compute(policy, Input{Err: apply.ErrConflict})
	if got := condition(status, v1.ConditionDeprecatedFields); got.Status != "True" || len(got.Message) > 1024 ||
		len(got.Message) < 600 {
		t.Errorf("%d characters: %+v", len(got.Message), got)
	}
}

// newEnvWithVMNode returns a cluster of three nodes; the second one is for virtual machines.
func newEnvWithVMNode(t *testing.T) *env {
	t.Helper()
	e := newEnv(t, 3)
	e.spec.SandboxWorkloads = &v1.SandboxWorkloadsSpec{Enabled: new(true)}
	e.setLabel(1, "nvidia.com/gpu.workload.config", "vm-passthrough")
	delete(e.snapshot.Pods, "node-00001")
	for _, ds := range e.snapshot.DaemonSets {
		ds.Status.DesiredNumberScheduled, ds.Status.UpdatedNumberScheduled = 2, 2
	}
	return e
}

// Nodes for virtual machines are reported one by one and together; the others get operands.
func TestNodesForVirtualMachines(t *testing.T) {
	status := newEnvWithVMNode(t).status()
	want := v1.NodeStatus{
		Name: "node-00001", Stage: v1.StageDiscovered, Pool: "ubuntu24.04-amd64", Reason: v1.ReasonNotSupportedYet,
		Message: "workload vm-passthrough is not supported yet: label the node nvidia.com/gpu.workload.config=container",
		Since:   new(metav1.NewTime(now)),
	}
	if diff := cmp.Diff(want, status.Nodes[0]); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	served := []v1.OperandState{v1.OperandReady, v1.OperandDisabled, v1.OperandNotNeeded}
	for _, o := range status.Operands {
		if !slices.Contains(served, o.State) {
			t.Errorf("%s is %s: %s", o.Name, o.State, o.Message)
		}
	}
	const message = "1 of 3 GPU nodes are for virtual machines, which are not supported yet: " +
		"label them nvidia.com/gpu.workload.config=container, or remove spec.sandboxWorkloads"
	if got := ready(status); got.Reason != v1.ReasonNotSupportedYet || got.Message != message {
		t.Errorf("%s: %s", got.Reason, got.Message)
	}
	// One node of many must not make Flux give up.
	if got := conditionsOf(status)["Stalled"]; got != "" {
		t.Errorf("the condition Stalled is %s", got)
	}
}

func TestNodesForVirtualMachinesAndOtherFailures(t *testing.T) {
	e := newEnvWithVMNode(t)
	e.failPod(2, "driver", "boom")
	if got := ready(e.status()); got.Reason != v1.ReasonOperandFailed {
		t.Errorf("with another failure: %s: %s", got.Reason, got.Message)
	}
	e.spec.DaemonSets = &v1.DaemonSetsSpec{NodeSelector: v1.Labels{"pool": "containers"}}
	e.setLabel(0, "pool", "containers")
	e.setLabel(2, "pool", "containers")
	if got := e.status(); got.NodeSummary.Degraded != 1 || got.NodeSummary.Excluded != 1 ||
		got.Nodes[1].Reason != v1.ReasonNotSelected {
		t.Errorf("where a nodeSelector keeps it out: %+v, %+v", got.NodeSummary, got.Nodes)
	}
	e.spec.DaemonSets = nil
	e.spec.SandboxWorkloads.Enabled = new(false)
	if got := e.status().NodeSummary.Degraded; got != 1 {
		t.Errorf("%d nodes are degraded while sandbox workloads are off", got)
	}
}
