package status

import (
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

const (
	mark  = "nvidia.com/gpu-operator.undecodable"
	cause = "cannot be decoded: spec.a is 5, which is not a text"
)

// A policy that cannot be decoded is reported with its present generation, whatever else the pass knows.
func TestAnUndecodablePolicyIsReported(t *testing.T) {
	tests := map[string]func(*Input){
		"with the last plan":               func(*Input) {},
		"after a restart":                  func(in *Input) { in.Plan = plan.Plan{} },
		"while nodes are not assessed yet": func(in *Input) { in.Unassessed = 2 },
		"after an error":                   func(in *Input) { in.Err = errors.New("timeout") },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			g, e := NewWithT(t), newEnv(t, 3)
			in := e.input()
			in.Undecodable = cause
			change(&in)
			before := newEnv(t, 3).status()
			after := Compute(&v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Generation: 9}, Status: before}, in)
			g.Expect(after.ObservedGeneration).To(BeEquivalentTo(9))
			g.Expect(after.State).To(Equal(v1.StateNotReady))
			g.Expect(after.Nodes).To(HaveLen(len(before.Nodes)))
			g.Expect(ready(after)).To(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", "Undecodable"),
				HaveField("Message", "the spec "+cause), HaveField("ObservedGeneration", BeEquivalentTo(9))))
			g.Expect(condition(after, v1.ConditionStalled)).To(HaveField("Reason", "Undecodable"))
		})
	}
}

func TestAnUndecodablePolicyBesideTheActiveOne(t *testing.T) {
	const active = "the spec " + cause + "; ClusterPolicy first is active"
	for want, first := range map[string]*v1.ClusterPolicy{
		active: named("first"), // It was never applied: an older one takes precedence once it is corrected.
		active + ", and this one stays ignored also after its correction, until that one is deleted": named("first",
			"nvidia.com/gpu-operator.removal"),
	} {
		g := NewWithT(t)
		status := Ignored(&v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{
			Generation: 3, Annotations: map[string]string{mark: cause},
		}}, namespace, first)
		g.Expect(status.State).To(Equal(v1.StateIgnored))
		g.Expect(ready(status)).To(And(HaveField("Reason", "Undecodable"), HaveField("Message", want)))
	}
}

// Also where no policy uses the objects, and while the policy that does cannot be decoded.
func TestAnUndecodableNVIDIADriverIsReported(t *testing.T) {
	g := NewWithT(t)
	bad := &v1alpha1.NVIDIADriver{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{mark: cause}}}
	for _, status := range []v1alpha1.NVIDIADriverStatus{
		NVIDIADriver(bad, DriverInput{}),
		NVIDIADriver(&v1alpha1.NVIDIADriver{}, DriverInput{Held: cause}),
	} {
		g.Expect(status.State).To(Equal(v1alpha1.StateNotReady))
		g.Expect(status.Conditions).To(ContainElement(And(HaveField("Type", "Ready"), HaveField("Reason", "Undecodable"),
			HaveField("Message", HavePrefix(cause)))))
		g.Expect(status.Conditions).To(ContainElement(And(HaveField("Type", "Stalled"), HaveField("Status",
			metav1.ConditionTrue))))
	}
}
