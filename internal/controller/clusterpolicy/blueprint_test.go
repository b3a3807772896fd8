package clusterpolicy

import (
	"testing"

	. "github.com/onsi/gomega"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/effective"
	"github.com/clusterpolicy/gpu-operator/internal/observe"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operands"
	"github.com/clusterpolicy/gpu-operator/internal/plan"
	"github.com/clusterpolicy/gpu-operator/internal/render"
)

// drawing is what a pass asks a blueprint for.
type drawing struct {
	spec     v1.ClusterPolicySpec
	snapshot observe.Snapshot
	owner    render.Owner
	live     map[string]render.Live
}

func newDrawing() drawing {
	node := operand.NodeFacts{
		Name: "a", HasGPU: true, WasGPU: true, Discovered: true, OSID: "ubuntu", OSVersion: "24.04", Architecture: "amd64",
		Kernel: "6.8.0-31-generic", Runtime: "containerd", RuntimeVersion: "2.1.3",
	}
	return drawing{
		snapshot: observe.Snapshot{Facts: []operand.NodeFacts{node}, FactsVersion: 1},
		owner:    render.Owner{Name: "cluster-policy", UID: "uid"}, live: map[string]render.Live{},
	}
}

// draw returns all objects, by operand.
func (d drawing) draw(t *testing.T, b *blueprint) map[operand.Name][]render.Object {
	t.Helper()
	g := NewWithT(t)
	catalogue, err := operands.Catalogue()
	g.Expect(err).NotTo(HaveOccurred())
	planned := b.planned(catalogue, operand.Input{Spec: effective.Of(d.spec), Namespace: "gpu-operator", HelperImage: "example.com/operator:1"}, d.snapshot)
	b.rendersFor(d.owner, d.live)
	drawn := map[operand.Name][]render.Object{}
	for _, step := range planned.Steps {
		if step.Action != plan.Apply {
			continue
		}
		drawn[step.Operand.Name], err = b.rendered(step)
		g.Expect(err).NotTo(HaveOccurred())
	}
	g.Expect(drawn).To(HaveKey(operand.Name("driver")))
	return drawn
}

// What a pass takes over from the one before is what it would have made itself.
func TestABlueprintIsMadeAnewWhenItMust(t *testing.T) {
	tests := map[string]struct {
		change func(*drawing)
		anew   bool
	}{
		"nothing":               {func(*drawing) {}, false},
		"how far the nodes are": {func(d *drawing) { d.snapshot.Nodes = make([]observe.Node, 1) }, false},
		"the spec":              {func(d *drawing) { d.spec.Driver = &v1.DriverSpec{ImageSpec: v1.ImageSpec{Version: "580.1"}} }, true},
		"a fact of a node": {func(d *drawing) {
			d.snapshot.Facts[0].OSVersion, d.snapshot.FactsVersion = "22.04", 2
		}, true},
		"the owner": {func(d *drawing) { d.owner.UID = "another" }, true},
		"a DaemonSet": {func(d *drawing) {
			d.live = map[string]render.Live{"nvidia-driver-daemonset": {HelperImage: "example.com/operator:0"}}
		}, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			kept := &blueprint{}
			before := newDrawing().draw(t, kept)
			changed := newDrawing()
			test.change(&changed)
			after := changed.draw(t, kept)
			g.Expect(after).To(Equal(changed.draw(t, &blueprint{})), "the same as without the pass before")
			for name := range before {
				for i := range min(len(before[name]), len(after[name])) {
					same := before[name][i] == after[name][i]
					g.Expect(same).NotTo(Equal(test.anew), "%s", name)
				}
			}
			g.Expect(before).To(Equal(newDrawing().draw(t, &blueprint{})), "what was given away has not changed")
		})
	}
}
