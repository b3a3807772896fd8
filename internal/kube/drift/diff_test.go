package drift

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func TestDiffSubset(t *testing.T) {
	const intent = `
metadata:
  labels: {a: b}
spec:
  template:
    spec:
      hostPID: true
      containers:
        - name: main
          args: [one, two]
          env: [{name: A, value: "1"}, {name: B, value: "2"}]
          resources: {limits: {cpu: 1, memory: 1Gi, none: 0}}
          volumeMounts: [{mountPath: /a, name: a}]
      tolerations: [{key: x, operator: Exists}]
      volumes: [{name: a, emptyDir: {}}]
`
	but := func(old, with string) string { return replace(t, intent, old, with) }
	tests := map[string]struct {
		live string
		want bool
	}{
		"the same": {live: intent, want: true},
		"with defaults, and additions of other writers": {want: true, live: `
metadata:
  uid: u
  labels: {a: b, theirs: x}
  annotations: {theirs: x}
spec:
  revisionHistoryLimit: 10
  template:
    spec:
      hostPID: true
      dnsPolicy: ClusterFirst
      containers:
        - name: sidecar-of-another-writer
        - name: main
          args: [one, two]
          env: [{name: THEIRS, value: x}, {name: B, value: "2"}, {name: A, value: "1"}]
          resources: {limits: {cpu: 1000m, memory: 1024Mi, none: 0.0, theirs: 1}}
          volumeMounts: [{mountPath: /theirs, name: x}, {mountPath: /a, name: a, readOnly: true}]
          terminationMessagePolicy: File
      tolerations: [{key: x, operator: Exists}]
      volumes: [{name: a, emptyDir: {}}, {name: x}]
`},
		"a label is gone":                {live: but("labels: {a: b}", "labels: {}")},
		"all labels are gone":            {live: but("labels: {a: b}", "uid: u")},
		"a label is changed":             {live: but("labels: {a: b}", "labels: {a: c}")},
		"a leaf is changed":              {live: but("hostPID: true", "hostPID: false")},
		"a leaf is gone":                 {live: but("hostPID: true", "hostIPC: true")},
		"a quantity of another value":    {live: but("memory: 1Gi", "memory: 1G")},
		"no quantity":                    {live: but("none: 0", "none: x")},
		"a quantity in another notation": {live: but("cpu: 1,", "cpu: 1000m,"), want: true},
		"a variable is changed": {
			live: but(`{name: A, value: "1"}`, `{name: A, value: "9"}`),
		},
		"a value that is a quantity elsewhere is a text here": {
			live: but(`{name: A, value: "1"}`, `{name: A, value: "1000m"}`),
		},
		"a variable is gone":                 {live: but(`{name: A, value: "1"}, `, "")},
		"the container is gone":              {live: but("name: main", "name: other")},
		"an argument is added":               {live: but("[one, two]", "[one, two, three]")},
		"the arguments are in another order": {live: but("[one, two]", "[two, one]")},
		"an argument is gone":                {live: but("[one, two]", "[one]")},
		"a toleration is added to an atomic list": {
			live: but("operator: Exists}]", "operator: Exists}, {key: y}]"),
		},
		"a mount points elsewhere": {
			live: but("{mountPath: /a, name: a}", "{mountPath: /a, name: b}"),
		},
		"a list has another type": {live: but("[one, two]", "one")},
		"it is empty":             {live: "{}"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := diffSubset(decode(t, intent), decode(t, test.live), ""); (got == nil) != test.want {
				t.Errorf("differs at %q", got)
			}
		})
	}
}

// An empty intent matches everything.
func TestDiffSubsetOfAnEmptyIntent(t *testing.T) {
	for name, intent := range map[string]string{
		"null": "{a: null}", "an empty map": "{a: {}}", "an empty list": "{a: []}", "nothing": "{}",
	} {
		t.Run(name, func(t *testing.T) {
			if diffSubset(decode(t, intent), decode(t, "{b: 1}"), "") != nil {
				t.Error("it differs")
			}
		})
	}
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

// Elements that other writers add to a list with keys are no difference, whatever the order.
func TestFirst(t *testing.T) {
	for _, test := range []struct{ intent, live, want string }{
		{"{initContainers: [{name: a}, {name: b}]}", "{initContainers: [{name: x}, {name: b}, {name: a}]}", ""},
		{"{volumes: [{name: a}, {name: b}]}", "{volumes: [{name: x}, {name: b}, {name: a}]}", ""},
		{"{imagePullSecrets: [{name: a}, {name: b}]}", "{imagePullSecrets: [{name: b}, {name: a}]}", ""},
		{"{ownerReferences: [{uid: a}]}", "{ownerReferences: [{uid: b}, {uid: a}]}", ""},
		{"{requests: {cpu: 1}}", "{requests: {cpu: 1000m}}", ""},
		{"{others: {cpu: 1}}", "{others: {cpu: 1000m}}", "others.cpu"},
		{"{a: {b: c}}", "{a: x}", "a"},
		{"{a: [b]}", "{a: x}", "a"},
		{"{a: [{}]}", "{a: [x]}", ""},
		{"{a: [[]]}", "{a: [x]}", ""},
		{"{env: [a]}", "{env: [a]}", "env[<nil>]"},
		{"{b: 1, a: 1}", "{b: 2, a: 2}", "a"},
	} {
		intent, isMap := decode(t, test.intent).(map[string]any)
		live, _ := decode(t, test.live).(map[string]any)
		g := NewWithT(t)
		g.Expect(isMap).To(BeTrue())
		g.Expect(First(&unstructured.Unstructured{Object: intent}, live).String()).To(Equal(test.want), test.intent)
	}
}

// replace changes one place of a text, and fails the test if the place is not unique.
func replace(t *testing.T, text, old, with string) string {
	t.Helper()
	if strings.Count(text, old) != 1 {
		t.Fatalf("%q does not occur exactly once", old)
	}
	return strings.Replace(text, old, with, 1)
}

func decode(t *testing.T, text string) any {
	t.Helper()
	var value any
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return value
}
