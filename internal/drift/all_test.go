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
	g.Expect(Between(object("{a: {b: 1, c: []}, d: x}"), object("{a: {b: 2}, e: y}"))).To(ConsistOf(
		HaveField("Path", "a.b"), HaveField("Path", "d"), HaveField("Path", "e")))
}
