package apply

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// mutateKey is a mutating admission policy that sets the data of ConfigMaps.
func mutateKey(value string) func(context.Context, *unstructured.Unstructured) error {
	return func(_ context.Context, o *unstructured.Unstructured) error {
		return unstructured.SetNestedField(o.Object, value, "data", "key")
	}
}

func TestAlteredWriteIsReportedAndRetried(t *testing.T) {
	const byPolicy = "a mutating admission webhook or policy changes data.key of ConfigMap a whenever the operator " +
		"applies it: exempt the object there, or set the same value in the ClusterPolicy"
	manager := func(o *unstructured.Unstructured) {
		o.SetManagedFields([]metav1.ManagedFieldsEntry{
			{Manager: "gpu-operator", FieldsV1: metav1.NewFieldsV1(`{"f:data":{"f:key":{}}}`)},
			{Manager: "other", FieldsV1: metav1.NewFieldsV1(`{"f:data":{"f:another":{}}}`)},
			{Manager: "mutator", FieldsV1: metav1.NewFieldsV1(`{"f:data":{"f:key":{}}}`)},
		})
	}
	tests := map[string]struct {
		answered func(*unstructured.Unstructured)
		manager  string
		text     string
	}{
		"by a policy": {text: byPolicy},
		"by a manager": {
			answered: manager, manager: "mutator",
			text: "field manager mutator changes data.key of ConfigMap a",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				c := newCluster(t)
				c.admit(mutateKey("altered"))
				c.answered = test.answered
				applier := c.applier()
				// An intent that is rendered again with the same content shares the back-off.
				for range 50 {
					wrote, err := applyOne(applier, configMap("a"))
					altered := &AlteredError{}
					g.Expect(errors.As(err, &altered)).To(BeTrue(), "%v", err)
					g.Expect(*altered).
						To(Equal(AlteredError{Object: "ConfigMap a", Field: "data.key", Manager: test.manager}))
					g.Expect(err).To(MatchError(ContainSubstring(test.text)))
					g.Expect(wrote).To(BeFalse())
				}
				g.Expect(c.writes()).To(HaveLen(1))
				g.Expect(applier.RetryAfter()).To(Equal(time.Second))
				g.Expect(applier.Differs(t.Context(), policy, configMap("a"))).
					To(BeTrue(), "it never counts as in sync")

				// The second attempt changes nothing, which is no success either.
				time.Sleep(applier.RetryAfter())
				_, err := applyOne(applier, configMap("a"))
				g.Expect(err).To(MatchError(ContainSubstring(test.text)))
				g.Expect(c.writes()).To(HaveLen(2))
				g.Expect(applier.RetryAfter()).To(Equal(2 * time.Second))

				c.admit(nil)
				time.Sleep(applier.RetryAfter())
				g.Expect(applyOne(applier, configMap("a"))).To(BeTrue())
				g.Expect(c.get(t, "a").Data).To(HaveKeyWithValue("key", "value"))
				g.Expect(applier.RetryAfter()).To(BeZero())
				g.Expect(applyOne(applier, configMap("a"))).To(BeFalse())
				g.Expect(c.writes()).To(HaveLen(3))
			})
		})
	}
}

// A write that leaves the differing object as it was is an error, whatever the answer looks like.
func TestWriteWithoutEffectIsAnError(t *testing.T) {
	g := NewWithT(t)
	live := applied(t, configMap("a"))
	live.Data["key"] = "drift"
	c := newCluster(t, live)
	version := c.get(t, "a").ResourceVersion
	c.admit(mutateKey("drift"))
	c.answered = func(o *unstructured.Unstructured) {
		o.SetResourceVersion(version)
		g.Expect(unstructured.SetNestedField(o.Object, "value", "data", "key")).To(Succeed())
	}
	_, err := applyOne(c.applier(), configMap("a"))
	g.Expect(err).To(BeEquivalentTo(&AlteredError{Object: "ConfigMap a", Field: "data.key"}))
}
