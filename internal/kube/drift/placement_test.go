package drift

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

const placement = `
kind: DaemonSet
metadata: {name: a, resourceVersion: "7"}
spec:
  template:
    spec:
      nodeSelector: {gpu: "true"}
      containers: [{name: main}]
`

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	content, _ := decode(t, text).(map[string]any)
	object := &unstructured.Unstructured{Object: content}
	object.SetAnnotations(map[string]string{labels.Digest: "d"})
	return object
}

func TestAdditions(t *testing.T) {
	const theirSelector = `{gpu: "true", a.b/c: x}`
	but := func(old, with string) string { return replace(t, placement, old, with) }
	tests := map[string]struct {
		live string
		want []string
		// patch is the one that removes the additions.
		patch string
	}{
		"none":              {live: placement},
		"an empty field":    {live: but("containers:", "tolerations: []\n      containers:")},
		"in another field":  {live: but("{name: main}", "{name: main}, {name: sidecar}")},
		"of another object": {live: replace(t, but(`{gpu: "true"}`, theirSelector), "DaemonSet", "ConfigMap")},
		"a label of the selector": {
			live: but(`{gpu: "true"}`, theirSelector), want: []string{"spec.template.spec.nodeSelector[a.b/c]"},
			patch: `{"op":"remove","path":"/spec/template/spec/nodeSelector/a.b~1c"}`,
		},
		"a whole field": {
			live: but("containers:", "tolerations: [{key: x}]\n      containers:"),
			want: []string{"spec.template.spec.tolerations"}, patch: `{"op":"remove","path":"/spec/template/spec/tolerations"}`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			intent, live := object(t, placement), object(t, test.live)
			intent.SetKind(live.GetKind())
			additions := Additions(intent, live.Object)
			var found []string
			for _, field := range additions {
				found = append(found, field.String())
			}
			g.Expect(found).To(Equal(test.want))
			first := First(intent, live.Object)
			if test.want == nil {
				g.Expect(first).To(BeNil())
				return
			}
			g.Expect(first.String()).To(Equal(test.want[0]))
			g.Expect(RemovalPatch("7", additions)).To(MatchJSON(
				`[{"op":"replace","path":"/metadata/resourceVersion","value":"7"},` + test.patch + `]`))
		})
	}
}

func TestRepairOf(t *testing.T) {
	g := NewWithT(t)
	intent, live := object(t, placement), object(t, placement)
	selector := append(podSpec(), keySegment("nodeSelector"), keySegment("gpu"))
	managed := []metav1.ManagedFieldsEntry{{Manager: "other", FieldsV1: metav1.NewFieldsV1(
		`{"f:spec":{"f:template":{"f:spec":{"f:nodeSelector":{"f:gpu":{}}}}}}`)}}

	repair := RepairOf(intent, live, selector, managed)
	g.Expect(repair).To(Equal(
		&Repair{
			Object: "DaemonSet a", Version: "7", Field: "spec.template.spec.nodeSelector.gpu", Manager: "other", Placement: true,
		}))
	g.Expect(repair.String()).To(Equal("DaemonSet a: field manager other changed " +
		"spec.template.spec.nodeSelector.gpu, which decides on which nodes the pods run. The operator has reverted the " +
		"change: set nodeSelector or tolerations in the ClusterPolicy instead"))
	other := Path{keySegment("spec"), keySegment("a"), keySegment("spec"), keySegment("nodeSelector")}
	for _, field := range []Path{podSpec(), other, append(podSpec(), keySegment("containers"))} {
		g.Expect(RepairOf(intent, live, field, nil).Placement).To(BeFalse(), field.String())
	}
	deployment := intent.DeepCopy()
	deployment.SetKind("Deployment")
	g.Expect(RepairOf(deployment, live, selector, nil).Placement).To(BeFalse())
	g.Expect(RepairOf(intent, live, selector, nil).String()).To(HavePrefix("DaemonSet a: another client changed"))

	g.Expect(RepairOf(intent, nil, selector, managed)).To(BeNil(), "a new object")
	containers := append(podSpec(), keySegment("containers"))
	g.Expect(RepairOf(intent, live, containers, managed).String()).To(Equal("DaemonSet a: another client changed " +
		"spec.template.spec.containers. The operator has reverted the change: set the value in the ClusterPolicy, where " +
		"that has a field for it, instead"))
	intent.SetAnnotations(map[string]string{labels.Digest: "d", labels.EditInstead: "set a"})
	g.Expect(RepairOf(intent, live, containers, managed).String()).To(HaveSuffix("reverted the change: set a instead"))
	live.SetAnnotations(map[string]string{labels.Digest: "e"})
	g.Expect(RepairOf(intent, live, selector, managed)).To(BeNil(), "another intent")
}

func podSpec() Path {
	var at Path
	for _, key := range podSpecPath {
		at = append(at, keySegment(key))
	}
	return at
}
