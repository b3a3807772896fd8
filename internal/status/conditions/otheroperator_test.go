package conditions

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// While NVIDIA's operator is at work, its conditions and its state stay; they are set only while it has set none.
func TestOtherOperatorRunning(t *testing.T) {
	g := NewWithT(t)
	condition := func(status v1.ClusterPolicyStatus, kind string) string {
		found := meta.FindStatusCondition(status.Conditions, kind)
		if found == nil {
			return ""
		}
		return string(found.Status) + " " + found.Reason + ": " + found.Message
	}
	policy := &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Generation: 3}}
	first := OtherOperatorRunning(policy, "it runs")
	g.Expect(policy.Status.Conditions).To(BeEmpty(), "the argument is not changed")
	g.Expect(first.State).To(Equal(v1.StateNotReady))
	g.Expect(first.Conditions).To(HaveEach(HaveField("ObservedGeneration", int64(3))))
	g.Expect(condition(first, v1.ConditionOtherOperatorRunning)).To(Equal("True OtherOperatorRunning: it runs"))
	g.Expect(condition(first, v1.ConditionReady)).To(Equal("False OtherOperatorRunning: it runs"))
	g.Expect(condition(first, v1.ConditionError)).To(Equal("True OtherOperatorRunning: it runs"))

	policy.Status = first
	second := OtherOperatorRunning(policy, "another one runs")
	g.Expect(condition(second, v1.ConditionReady)).To(Equal("False OtherOperatorRunning: another one runs"))
	ClearOtherOperator(&second)
	g.Expect(second.Conditions).To(BeEmpty())

	meta.SetStatusCondition(&policy.Status.Conditions, metav1.Condition{
		Type: v1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Reconciled",
	})
	policy.Status.State = v1.StateReady
	third := OtherOperatorRunning(policy, "it runs")
	g.Expect(condition(third, v1.ConditionReady)).To(Equal("True Reconciled: "))
	g.Expect(third.State).To(Equal(v1.StateReady))
	ClearOtherOperator(&third)
	g.Expect(condition(third, v1.ConditionReady)).To(Equal("True Reconciled: "))
	g.Expect(condition(third, v1.ConditionOtherOperatorRunning)).To(BeEmpty())
}
