package drift

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestAll(t *testing.T) {
	const intent = `
metadata:
  labels: {a: b}
  ownerReferences: [{uid: ours, name: x}]
spec:
  selector: {matchExpressions: [{key: a, operator: Exists}]}
  template:
    metadata: {labels: {app: x}}
    spec:
      nodeSelector: {gpu: "true"}
      imagePullSecrets: [{name: a}]
      containers:
        - name: main
          image: i:2
          args: [one, two]
          env: [{name: A, value: "1"}, {name: B, value: "2"}]
          resources: {limits: {cpu: 1}}
      tolerations: [{key: x, operator: Exists}, {operator: Exists}]
      volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: t}}]}}]
`
	const live = `
metadata:
  labels: {a: b, theirs: x}
  ownerReferences: [{uid: theirs, name: y}, {uid: ours, name: x}]
spec:
  selector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}
  revisionHistoryLimit: 10
  template:
    metadata: {labels: {app: x, old: "1"}}
    spec:
      dnsPolicy: ClusterFirst
      nodeSelector: {gpu: "true", zone: a}
      imagePullSecrets: [{}]
      containers:
        - name: main
          image: i:1
          args: [one]
          terminationMessagePolicy: File
          env: [{name: A, value: "1"}, {name: C, value: "3"}]
          resources: {limits: {cpu: 1000m, memory: 1Gi}}
      tolerations: [{key: z, operator: Exists}, {key: dedicated, operator: Exists, effect: NoSchedule}]
      volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: t, expirationSeconds: 3600}}]}}]
`
	g := NewWithT(t)
	object := func(text string) map[string]any {
		fields, _ := decode(t, text).(map[string]any)
		return fields
	}
	const container, pod = "spec.template.spec.containers[main].", "spec.template.spec."
	g.Expect(All(&unstructured.Unstructured{Object: object(intent)}, object(live))).To(ConsistOf(
		Difference{"spec.template.metadata.labels.old", "1", nil},
		Difference{"spec.selector.matchExpressions[0].values", []any{"b"}, nil},
		Difference{pod + "nodeSelector.zone", "a", nil},
		Difference{pod + "imagePullSecrets[0].name", nil, "a"},
		Difference{container + "image", "i:1", "i:2"},
		Difference{container + "args", []any{"one"}, []any{"one", "two"}},
		Difference{container + "env[B]", nil, map[string]any{"name": "B", "value": "2"}},
		Difference{container + "env[C]", map[string]any{"name": "C", "value": "3"}, nil},
		Difference{container + "resources.limits.memory", "1Gi", nil},
		Difference{pod + "tolerations[0].key", "z", "x"},
		Difference{pod + "tolerations[1].key", "dedicated", nil},
		Difference{pod + "tolerations[1].effect", "NoSchedule", nil},
	))
	g.Expect(All(&unstructured.Unstructured{Object: object(intent)}, object(intent))).To(BeEmpty())
	unnamed := object("{spec: {template: {spec: {imagePullSecrets: [{}]}}}}")
	named := object("{spec: {template: {spec: {imagePullSecrets: [{name: a}]}}}}")
	g.Expect(All(&unstructured.Unstructured{Object: unnamed}, named)).To(BeEmpty())
	g.Expect(Between(object("{a: {b: 1, c: []}, d: x}"), object("{a: {b: 2}, e: y}"))).To(ConsistOf(
		HaveField("Path", "a.b"), HaveField("Path", "d"), HaveField("Path", "e")))
}

func TestPathsOfAll(t *testing.T) {
	for _, test := range []struct {
		intent, live string
		want         []string
	}{
		{"{a: {b: c}}", "{a: x}", []string{"a"}},
		{"{a: [b]}", "{a: x}", []string{"a"}},
		{"{a: null}", "{a: x}", nil},
		{"{metadata: {labels: {a: b}}}", "{metadata: {labels: {a: b, c: d}}}", nil},
		{"{spec: {labels: {a: b}}}", "{spec: {labels: {a: b, c: d}}}", []string{"spec.labels.c"}},
		{"{x: {annotations: {a: b}}}", "{x: {annotations: {a: b, c: d}}}", []string{"x.annotations.c"}},
		{"{matchLabels: {a: b}}", "{matchLabels: {a: b, c: d}}", []string{"matchLabels.c"}},
		{"{data: {a: b}}", "{data: {a: b, c: d}}", []string{"data.c"}},
		{"{requests: {a: 1}}", "{requests: {a: 1000m, c: d}}", []string{"requests.c"}},
		{"{others: {a: b}}", "{others: {a: b, c: d}}", nil},
		{"{nodeSelectorTerms: [{a: b}]}", "{nodeSelectorTerms: [{a: b, c: d}]}", []string{"nodeSelectorTerms[0].c"}},
		{"{others: [{a: b}]}", "{others: [{a: b, c: d}]}", nil},
		{
			"{initContainers: [{name: a}]}", "{initContainers: [{name: b}]}",
			[]string{"initContainers[a]", "initContainers[b]"},
		},
		{"{volumes: [{name: a}]}", "{volumes: [{name: b}]}", []string{"volumes[a]", "volumes[b]"}},
		{"{args: [a]}", "{args: [b]}", []string{"args"}},
		{"{args: [a, b]}", "{args: [a, b]}", nil},
		{"{a: [{b: c}]}", "{a: [{b: c}, {b: d}]}", []string{"a"}},
	} {
		intent, _ := decode(t, test.intent).(map[string]any)
		live, _ := decode(t, test.live).(map[string]any)
		var got []string
		for _, difference := range All(&unstructured.Unstructured{Object: intent}, live) {
			got = append(got, difference.Path)
		}
		NewWithT(t).Expect(got).To(Equal(test.want), test.intent)
	}
	composed := &unstructured.Unstructured{Object: map[string]any{"a": map[string]any{"b": "c"}, "d": []any{"e"}}}
	NewWithT(t).Expect(All(composed, map[string]any{"a": "x", "d": "y"})).To(Equal(
		[]Difference{{"a", "x", map[string]any{"b": "c"}}, {"d", "y", []any{"e"}}}))
	NewWithT(t).Expect(Between(map[string]any{"a": "x", "b": "y"}, map[string]any{"a": "z", "b": nil})).To(Equal(
		[]Difference{{"a", "x", "z"}, {"b", "y", nil}}))
}
