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
	const byPolicy = "ConfigMap a was altered when it was applied: an admission webhook or policy changes data.key" +
		"; exempt the object, or set the same value in the ClusterPolicy"
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
		"by a policy":  {text: byPolicy},
		"by a manager": {answered: manager, manager: "mutator", text: "field manager mutator changes data.key; exempt"},
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

func TestDifferingField(t *testing.T) {
	const intent = `
metadata:
  labels: {a: b}
  annotations: {example.com/a: b}
spec:
  template:
    spec:
      containers:
        - {name: first, image: x}
        - {name: main, image: x, args: [one, two], env: [{name: A, value: "1"}], resources: {limits: {cpu: 1}}}
      tolerations: [{key: x}, {key: y}]
`
	tests := map[string]struct{ old, with, want string }{
		"a label": {"labels: {a: b}", "labels: {}", "metadata.labels.a"},
		"a key with dots": {
			"annotations: {example.com/a: b}",
			"annotations: {}",
			"metadata.annotations[example.com/a]",
		},
		"a container's leaf": {
			"{name: main, image: x",
			"{name: main, image: y",
			"spec.template.spec.containers[main].image",
		},
		"a container":       {"{name: first, image: x}", "{name: another}", "spec.template.spec.containers[first]"},
		"a variable":        {`value: "1"`, `value: "2"`, "spec.template.spec.containers[main].env[A].value"},
		"a quantity":        {"cpu: 1", "cpu: 2", "spec.template.spec.containers[main].resources.limits.cpu"},
		"an argument":       {"[one, two]", "[one, 2]", "spec.template.spec.containers[main].args[1]"},
		"another length":    {"[{key: x}, {key: y}]", "[{key: x}]", "spec.template.spec.tolerations"},
		"an element's leaf": {"{key: y}", "{key: z}", "spec.template.spec.tolerations[1].key"},
		"the first of two":  {"{a: b}\n  annotations: {example.com/a: b}", "{}", "metadata.annotations"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			live := decode(t, replace(t, intent, test.old, test.with))
			g.Expect(diffSubset(decode(t, intent), live, "").String()).To(Equal(test.want))
		})
	}
}

func TestManagerOf(t *testing.T) {
	image := path{
		keySegment("spec"),
		keySegment("containers"),
		elementSegment("name", map[string]any{"name": "main"}),
		keySegment("image"),
	}
	argument := path{keySegment("spec"), keySegment("args"), {text: "[0]"}}
	tests := map[string]struct {
		field  path
		fields string
		want   string
	}{
		"the leaf": {
			image,
			`{"f:spec":{"f:containers":{"k:{\"name\":\"main\"}":{".":{},"f:image":{}}}}}`,
			"other",
		},
		"another leaf": {
			image,
			`{"f:spec":{"f:containers":{"k:{\"name\":\"main\"}":{".":{},"f:args":{}}}}}`,
			"",
		},
		"another container": {
			image,
			`{"f:spec":{"f:containers":{"k:{\"name\":\"side\"}":{"f:image":{}}}}}`,
			"",
		},
		"a list that is one value":  {argument, `{"f:spec":{"f:args":{}}}`, "other"},
		"a set whose elements vary": {argument, `{"f:spec":{"f:args":{"v:\"x\"":{}}}}`, ""},
		"no fields":                 {image, `{}`, ""},
		"not JSON":                  {image, `x`, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			entries := []metav1.ManagedFieldsEntry{
				{Manager: "empty"}, {Manager: "gpu-operator", FieldsV1: metav1.NewFieldsV1(test.fields)},
				{Manager: "other", FieldsV1: metav1.NewFieldsV1(test.fields)},
			}
			NewWithT(t).Expect(managerOf(test.field, entries)).To(Equal(test.want))
		})
	}
}
