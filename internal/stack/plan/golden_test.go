package plan_test

import (
	"fmt"
	"strings"
	"testing"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/test/golden"
	"github.com/clusterpolicy/gpu-operator/test/scenarios"
)

// The golden files show the plans of some clusters as text, with every decision and message. UPDATE_GOLDEN=1 writes
// them.
func TestPlanGoldens(t *testing.T) {
	var eight, two []nodeinfo.Facts
	for i := range 8 {
		eight = append(eight, ubuntu(fmt.Sprintf("node-%d", i+1)))
	}
	two = append(two, eight[:2]...)
	for i := range 3 {
		two = append(
			two,
			changed(ubuntu(fmt.Sprintf("rhel-%d", i+1)), func(f *nodeinfo.Facts) { f.OSID, f.OSVersion = "rhel", "9.6" }),
		)
	}
	two[1] = changed(two[1], func(f *nodeinfo.Facts) {
		f.Deploy = map[string]string{"device-plugin": "false"}
	})
	two[4] = changed(two[4], func(f *nodeinfo.Facts) { f.Runtime = "isulad" })
	tests := map[string]struct {
		spec    v1.ClusterPolicySpec
		nodes   []nodeinfo.Facts
		toolkit map[string]string
	}{
		"eight-ubuntu-nodes":    {nodes: eight},
		"two-operating-systems": {nodes: two},
		"no-gpu-nodes":          {},
		"driver-disabled":       {spec: v1.ClusterPolicySpec{Driver: &v1.DriverSpec{Enabled: new(false)}}, nodes: eight[:1]},
		"node-pools-that-contradict": {
			spec: v1.ClusterPolicySpec{
				GDS:     &v1.GDSSpec{Enabled: new(true)},
				Toolkit: &v1.ToolkitSpec{ImageSpec: v1.ImageSpec{Image: "example.com/toolkit:1"}},
				NodePools: []v1.NodePoolSpec{
					{
						Name:         "built",
						NodeSelector: v1.NodePoolSelector{"team": "a"},
						Driver:       &v1.NodePoolDriverSpec{ImageSpec: v1.ImageSpec{Version: "590.44.01"}},
					},
					{Name: "precompiled", NodeSelector: v1.NodePoolSelector{"team": "b"}, Driver: &v1.NodePoolDriverSpec{
						UsePrecompiled: new(true), ImageSpec: v1.ImageSpec{Version: "590"},
					}},
					{
						Name:         "toolkit",
						NodeSelector: v1.NodePoolSelector{"team": "c"},
						Toolkit:      &v1.NodePoolToolkitSpec{ImageSpec: v1.ImageSpec{Version: "v2"}},
					},
					{
						Name:         "hidden",
						NodeSelector: v1.NodePoolSelector{"team": "a", "zone": "1"},
						MIG:          &v1.MIGSpec{Strategy: v1.MIGStrategyMixed},
					},
				},
			},
			nodes: []nodeinfo.Facts{
				ubuntu("plain"),
				withLabels(ubuntu("a"), "team", "a", "zone", "1"),
				withLabels(ubuntu("b"), "team", "b"),
				withLabels(ubuntu("c"), "team", "c"),
			},
		},
		"driver-spec-contradicts": {
			spec: v1.ClusterPolicySpec{
				Driver: &v1.DriverSpec{ImageSpec: v1.ImageSpec{Image: "example.com/driver:1", Version: "2"}},
			},
			nodes: eight[:1],
		},
	}
	for name, scenario := range scenarios.All {
		name = "scenario-" + name
		test := tests[name]
		spec, err := scenario.PolicySpec()
		if err != nil {
			t.Fatal(err)
		}
		test.spec, test.nodes, test.toolkit = spec, scenario.Nodes, scenario.DriverToolkit
		tests[name] = test
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := plan.Compute(plan.Decide(catalogue(t), operand.Input{
				Spec:          effective.Of(test.spec),
				Namespace:     "gpu-operator",
				OperatorImage: "example.com/gpu-operator:v1",
				DriverToolkit: test.toolkit,
			}), nil, test.nodes)
			golden.Compare(t, "testdata/"+name+".golden", describe(p, test.nodes))
		})
	}
}

// withLabels returns the node with these labels, each key followed by its value.
func withLabels(facts nodeinfo.Facts, pairs ...string) nodeinfo.Facts {
	facts.Labels = map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		facts.Labels[pairs[i]] = pairs[i+1]
	}
	return facts
}

func describe(p plan.Plan, nodes []nodeinfo.Facts) string {
	var s strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&s, format+"\n", args...) }
	line("GPU nodes: %d.", len(nodes))
	for _, pool := range p.Pools {
		line("Pool %s has %d of them; its driver images end in %s.", pool.Name, pool.Nodes, pool.OSTag)
	}
	s.WriteString(pools(p))
	for _, step := range p.Steps {
		line("")
		line("%s %s%s", step.Action, step.Operand.Name, why(step.State, step.Reason, step.Message))
		for _, instance := range step.Instances {
			line("  %s%s", orDash(instance.Image), where(instance))
		}
		if step.Action != plan.Apply {
			continue
		}
		for _, marker := range step.AwaitedMarkers {
			line("  waits on its node for %s", marker.File())
		}
		for _, proof := range step.Operand.Proofs {
			if step.WritesMarkers[proof.Marker] {
				line("  proves %s in container %s", proof.Marker.File(), proof.Container)
			}
		}
	}
	if len(nodes) > 0 {
		line("")
	}
	for _, facts := range nodes {
		node := p.ForNode(facts)
		if node.NodePool != "" {
			line("%s is in node pool %s", facts.Name, node.NodePool)
		}
		line("%s, stages:%s", facts.Name, stages(node.Essential))
		if node.NeedsAllocatable {
			line("  GPUs must be allocatable")
		}
		line("  other operands:%s", stages(node.Auxiliary))
	}
	return s.String()
}

// pools describes the node pools of the spec.
func pools(p plan.Plan) string {
	var s strings.Builder
	for _, pool := range p.NodePools {
		if pool.Decision.Choice != operand.Install {
			fmt.Fprintf(&s, "Refused, %s: %s.\n", pool.Decision.Reason, pool.Decision.Message)
			continue
		}
		fmt.Fprintf(&s, "Node pool %s: applied to its nodes.\n", pool.Name)
	}
	return s.String()
}

func stages(all []plan.OperandOnNode) string {
	need := map[plan.Expectation]string{
		plan.Expected: "", plan.HostProvides: " (the host has it)", plan.OptedOut: " (kept off: %s)",
		plan.PausedByLabel: " (paused: %s)", plan.Refused: " (not possible: %s)",
	}
	var s strings.Builder
	for _, stage := range all {
		format := need[stage.Expectation]
		if strings.Contains(format, "%s") {
			format = fmt.Sprintf(format, stage.Message)
		}
		fmt.Fprintf(&s, " %s%s;", stage.Operand, format)
	}
	return s.String()
}

func why(state v1.OperandState, reason, message string) string {
	if state == "" {
		return ""
	}
	return fmt.Sprintf(", as it is %s (%s): %s", state, reason, message)
}

// where describes the nodes of an instance, if they are not all nodes of its operand.
func where(instance operand.Instance) string {
	switch {
	case instance.NodePool != "" && instance.Layout != "":
		return " in node pool " + instance.NodePool + " with runtime layout " + instance.Layout
	case instance.NodePool != "" && instance.Pool == "":
		return " in node pool " + instance.NodePool
	case instance.Pool != "":
		return " on pool " + instance.Pool
	case instance.Layout != "":
		return " with runtime layout " + instance.Layout
	}
	return ""
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
