package node

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/effective"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operands"
	"github.com/clusterpolicy/gpu-operator/internal/plan"
)

// What looks at nodes have in common is made once, and anew when what it is made of changes.
func TestPlanningIsMadeAnewWhenItMust(t *testing.T) {
	catalogue, err := operands.Catalogue()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	type look struct {
		policy *v1.ClusterPolicy
		input  operand.Input
	}
	tests := map[string]struct {
		change func(*look)
		anew   bool
	}{
		"nothing":         {func(*look) {}, false},
		"another version": {func(l *look) { l.policy.ResourceVersion = "2" }, false},
		"the same version with another field": {func(l *look) {
			l.policy.Spec.Toolkit = &v1.ToolkitSpec{Enabled: new(false)}
		}, true},
		"another policy": {func(l *look) { l.policy.UID = "b" }, true},
		"contents": {func(l *look) {
			l.input.Contents = map[operand.Reference]operand.Content{{Kind: operand.ConfigMap, Name: "c"}: {Digest: "d"}}
		}, true},
		"images": {func(l *look) { l.input.DriverToolkit = map[string]string{"418.94": "example.com/dtk"} }, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			p := &planning{}
			ask := func(l look) {
				asked := p.of(catalogue, l.policy)
				g.Expect(asked.spec).To(Equal(effective.Of(l.policy.Spec)))
				l.input.Spec = asked.spec
				g.Expect(p.planned(catalogue, asked, l.input)).To(Equal(plan.ForSpec(catalogue, l.input)))
			}
			l := look{policy: &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{UID: "a", ResourceVersion: "1"}}}
			ask(l)
			first := p.plan
			l.policy = l.policy.DeepCopy()
			test.change(&l)
			ask(l)
			same := p.plan == first
			g.Expect(same).NotTo(Equal(test.anew))
		})
	}
}
