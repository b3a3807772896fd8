package render_test

import (
	"fmt"
	"testing"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/stack/render"
)

// BenchmarkPlanAndRender is what a pass computes for 1,000 nodes in four driver pools, without node pools and with four
// that override all they can. Its budget is 50 ms.
func BenchmarkPlanAndRender(b *testing.B) {
	var pools []v1.NodePoolSpec
	for i := range 4 {
		pools = append(pools, v1.NodePoolSpec{
			Name: fmt.Sprintf("pool-%d", i), NodeSelector: v1.NodePoolSelector{"example.com/team": v1.LabelValue(fmt.Sprint(i))},
			Driver:  &v1.NodePoolDriverSpec{ImageSpec: v1.ImageSpec{Version: fmt.Sprintf("590.44.0%d", i)}},
			Toolkit: &v1.NodePoolToolkitSpec{ImageSpec: v1.ImageSpec{Version: fmt.Sprintf("v1.19.%d", i)}},
			MIG:     &v1.MIGSpec{Strategy: v1.MIGStrategyMixed},
		})
	}
	b.Run("no node pools", func(b *testing.B) { planAndRender(b, v1.ClusterPolicySpec{}) })
	b.Run("four node pools", func(b *testing.B) { planAndRender(b, v1.ClusterPolicySpec{NodePools: pools}) })
}

func planAndRender(b *testing.B, spec v1.ClusterPolicySpec) {
	b.Helper()
	all, err := operands.Catalogue()
	if err != nil {
		b.Fatal(err)
	}
	systems := [][2]string{{"ubuntu", "24.04"}, {"ubuntu", "22.04"}, {"rhel", "9.6"}, {"sles", "15.7"}}
	var nodes []nodeinfo.Facts
	for i := range 1000 {
		system := systems[i%len(systems)]
		facts := node(system[0], system[1])
		facts.Name = fmt.Sprintf("node-%04d", i)
		facts.Labels = map[string]string{"example.com/team": fmt.Sprint(i % 5)}
		nodes = append(nodes, facts)
	}
	in := operand.Input{Spec: effective.Of(spec), Namespace: "gpu-operator", OperatorImage: helper}
	b.ReportAllocs()
	for b.Loop() {
		p := plan.Compute(plan.Decide(all, in), nil, nodes)
		for _, step := range p.Steps {
			if step.Action != plan.Apply {
				continue
			}
			if _, err := render.Step(p, step, owner, nil); err != nil {
				b.Fatal(err)
			}
		}
	}
}
