package plan_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

// Only the driver is not held by references of the spec where objects declare the drivers.
func TestReferencesOfOthersHoldBesideNVIDIADrivers(t *testing.T) {
	in := withDrivers(object("a", "a", "1"))
	in.Namespace, in.Contents = "gpu-operator", map[operand.Reference]operand.Content{}
	in.Spec.DCGMExporter.Config.Name = "missing"
	step := computeFor(t, in, []nodeinfo.Facts{withLabels(ubuntu("n"), "team", "a")})["dcgm-exporter"]
	want := stepSummary{
		Action: plan.Hold, State: v1.OperandWaiting, Reason: v1.ReasonReferenceMissing,
		Message: "spec.dcgmExporter.config.name: there is no ConfigMap missing in namespace gpu-operator: create it",
	}
	if diff := cmp.Diff(want, step); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A node pool without nodes holds up no operand.
func TestRefusedPoolWithoutNodes(t *testing.T) {
	in := withPools(v1.NodePoolSpec{
		Name: "shared", NodeSelector: v1.NodePoolSelector{"team": "a"},
		DevicePlugin: &v1.NodePoolDevicePluginSpec{Config: &v1.NodePoolPluginConfigSpec{Name: "configs", Default: "four"}},
	})
	in.Namespace, in.Contents = "gpu-operator", map[operand.Reference]operand.Content{}
	if got := computeFor(t, in, nil)["device-plugin"]; got.Action != plan.Remove || got.State != v1.OperandNotNeeded {
		t.Errorf("got %+v", got)
	}
}

// The health agent reports also while it is paused.
func TestHealthReporter(t *testing.T) {
	all, err := operands.Catalogue()
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		label string
		off   bool
		want  operand.Name
	}{
		"it runs": {label: "true", want: "health-agent"}, "paused": {label: "paused-by-hand", want: "health-agent"},
		"opted out": {label: "false"}, "disabled": {label: "true", off: true},
	} {
		spec := v1.ClusterPolicySpec{Health: &v1.HealthSpec{Agent: &v1.HealthAgentSpec{Enabled: new(!test.off)}}}
		facts := changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.Deploy = map[string]string{"health-agent": test.label} })
		node := plan.Decide(all, operand.Input{Spec: effective.Of(spec)}).ForNode(facts)
		if node.HealthReporter != test.want {
			t.Errorf("%s: %q", name, node.HealthReporter)
		}
	}
}
