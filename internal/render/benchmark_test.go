package render_test

import (
	"fmt"
	"testing"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/effective"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operands"
	"github.com/clusterpolicy/gpu-operator/internal/plan"
	"github.com/clusterpolicy/gpu-operator/internal/render"
)

// BenchmarkPlanAndRender is what a pass computes for 1,000 nodes in four pools; its budget is 50 ms.
func BenchmarkPlanAndRender(b *testing.B) {
	all, err := operands.Catalogue()
	if err != nil {
		b.Fatal(err)
	}
	systems := [][2]string{{"ubuntu", "24.04"}, {"ubuntu", "22.04"}, {"rhel", "9.6"}, {"sles", "15.7"}}
	var nodes []operand.NodeFacts
	for i := range 1000 {
		system := systems[i%len(systems)]
		facts := node(system[0], system[1])
		facts.Name = fmt.Sprintf("node-%04d", i)
		nodes = append(nodes, facts)
	}
	in := operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{}), Namespace: "gpu-operator", HelperImage: helper}
	b.ReportAllocs()
	for b.Loop() {
		p := plan.Compute(all, in, nodes)
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
