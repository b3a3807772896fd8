package observe_test

import (
	"reflect"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/pluginfile"
)

var trimmedMeta = metav1.ObjectMeta{
	Name: "a", Namespace: "gpu-operator", UID: "u", ResourceVersion: "7",
	Labels:      map[string]string{"nvidia.com/gpu.present": "true"},
	Annotations: map[string]string{"digest": "of another writer", "nvidia.com/gpu-operator.template-digest": "d"},
}

// TrimReference must be idempotent: client-go trims the initial objects of a watch twice.
func TestTrimReferenceIsIdempotent(t *testing.T) {
	for name, object := range map[string]runtime.Object{
		"a ConfigMap": &corev1.ConfigMap{
			ObjectMeta: trimmedMeta,
			Data:       map[string]string{"b": "1", "c": "sharing: {"},
			BinaryData: map[string][]byte{"a": {1}},
		},
		"a Secret":        &corev1.Secret{ObjectMeta: trimmedMeta, Data: map[string][]byte{"a": {1}}},
		"a PriorityClass": &schedulingv1.PriorityClass{ObjectMeta: trimmedMeta, Value: 7},
		"a binding of an admission policy": &admissionv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: trimmedMeta, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: "a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			once, err := observe.TrimReference(object)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(once).NotTo(Equal(object))
			twice, err := observe.TrimReference(once)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(twice).To(Equal(once))
		})
	}
}

// Trimmed references keep the keys and the digest, but no data.
func TestContentsOfTrimmedReferences(t *testing.T) {
	g := NewWithT(t)
	read := func(data map[string]string) operand.Content {
		trimmed, err := observe.TrimReference(&corev1.ConfigMap{ObjectMeta: trimmedMeta, Data: data})
		g.Expect(err).NotTo(HaveOccurred())
		object, isObject := trimmed.(client.Object)
		g.Expect(isObject).To(BeTrue())
		g.Expect(object).To(HaveField("Data", BeEmpty()))
		g.Expect(object.GetUID()).To(Equal(trimmedMeta.UID))
		g.Expect(object.GetResourceVersion()).To(Equal(trimmedMeta.ResourceVersion))
		reader := fake.NewClientBuilder().WithObjects(object).Build()
		reference := operand.Reference{Kind: operand.ConfigMap, Name: "a"}
		contents, err := observe.Contents(t.Context(), reader, "gpu-operator", []operand.Reference{
			reference,
			{Kind: operand.Secret, Name: "a"},
		})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(contents).To(HaveLen(1), "there is no Secret")
		return contents[reference]
	}
	first := read(map[string]string{"a": "1", "b": "2"})
	g.Expect(first.Keys).To(Equal([]string{"a", "b"}))
	g.Expect(first.Problems).To(HaveEach(HaveEach(HaveField("Unlike", true))))
	configs := read(map[string]string{"a": "version: v1\nsharing: {mig: {}}\n", "b": "version: v1\nsharing: {}\n"})
	g.Expect(configs.Problems).
		To(And(HaveLen(1), HaveKeyWithValue("a", ConsistOf(HaveField("Line", 2)))))
	g.Expect(read(map[string]string{"b": "2", "a": "1"})).To(Equal(first))
	const layouts = "version: v1\nmig-configs: {halves: [], all-disabled: []}\n"
	g.Expect(read(map[string]string{"config.yaml": layouts}).Layouts).To(Equal([]string{"all-disabled", "halves"}))
	g.Expect(read(map[string]string{"a": "1", "b": "3"}).Digest).NotTo(Equal(first.Digest))
}

// Digests of single keys are kept where something depends on one of them: of ConfigMaps, and of licences with a token.
func TestDigestsOfKeys(t *testing.T) {
	g := NewWithT(t)
	password := map[string][]byte{"password": []byte("1234"), "user": []byte("a")}
	g.Expect(observe.SecretContent(&corev1.Secret{Data: password})).To(And(
		HaveField("KeyDigests", BeEmpty()), HaveField("Keys", Equal([]string{"password", "user"}))))
	licence := map[string][]byte{"client_configuration_token.tok": []byte("t"), "gridd.conf": []byte("g")}
	g.Expect(observe.SecretContent(&corev1.Secret{Data: licence})).To(
		HaveField("KeyDigests", And(HaveKey("client_configuration_token.tok"), HaveKey("gridd.conf"))))
	g.Expect(observe.ConfigMapContent(&corev1.ConfigMap{Data: map[string]string{"a": "1"}})).To(
		HaveField("KeyDigests", HaveKey("a")))
}

// Digests are in annotations of what was applied: another form of them would restart pods with each release.
func TestDigestsOfContentsAreStable(t *testing.T) {
	for name, content := range map[string]operand.Content{
		"a ConfigMap": observe.ConfigMapContent(&corev1.ConfigMap{Data: map[string]string{"b": "2\n", "a": "1"}}),
		"a Secret":    observe.SecretContent(&corev1.Secret{Data: map[string][]byte{"b": []byte("2\n"), "a": []byte("1")}}),
	} {
		NewWithT(t).Expect(content.Digest).To(Equal("2542dac55484f38a"), name)
	}
}

// What a configuration of the device plugin says is known as soon as the ConfigMap is read.
func TestSettingsOfPluginFiles(t *testing.T) {
	const shared = "\n    resources: [{name: nvidia.com/gpu, replicas: 4}]\n"
	content := observe.ConfigMapContent(&corev1.ConfigMap{Data: map[string]string{
		"mixed": "version: v1\nflags:\n  migStrategy: mixed\n", "mps": "version: v1\nsharing:\n  mps:" + shared,
		"slices": "version: v1\nsharing:\n  timeSlicing:" + shared, "none": "version: v1\nsharing: {}\n", "other": "a",
	}})
	NewWithT(t).Expect(content).To(And(
		HaveField("Strategies", Equal(map[string]pluginfile.Strategy{"mixed": {Value: "mixed", Line: 3}})),
		HaveField("MPSLines", Equal(map[string]int{"mps": 4})),
		HaveField("Replicas", Equal(map[string]int{"mps": 4, "slices": 4})),
		HaveField("Problems", And(HaveLen(1), HaveKeyWithValue("other", HaveEach(HaveField("Unlike", true))))),
	))
}

// Every kind that is watched can be read.
func TestEveryKindOfReferenceIsRead(t *testing.T) {
	g := NewWithT(t)
	references := []operand.Reference{
		{Kind: operand.ConfigMap, Name: "a"}, {Kind: operand.Secret, Name: "b"}, {Kind: operand.PriorityClass, Name: "c"},
		{Kind: operand.ValidatingAdmissionPolicyBinding, Name: "d"},
	}
	kinds := observe.ReferenceKinds()
	g.Expect(kinds).To(HaveLen(len(references)))
	for i, object := range kinds {
		object.SetName(references[i].Name)
		if i < 2 {
			object.SetNamespace("gpu-operator")
		}
	}
	none, err := observe.Contents(t.Context(), fake.NewClientBuilder().Build(), "gpu-operator", references)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(none).To(And(BeEmpty(), Not(BeNil())), "it has been read")
	all, err := observe.Contents(
		t.Context(),
		fake.NewClientBuilder().WithObjects(kinds...).Build(),
		"gpu-operator",
		references,
	)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(all).To(HaveLen(len(references)))
}

// What the MIG manager and the exporter would not take is known as soon as the ConfigMap is read.
func TestProblemsOfReferences(t *testing.T) {
	for name, test := range map[string]struct {
		data     map[string]string
		layouts  string
		problems map[string][]string
	}{
		"none": {data: map[string]string{
			"config.yaml": "version: v1\nmig-configs: {a: [{devices: all, mig-enabled: false}]}\n",
		}},
		"another file":     {data: map[string]string{"other": "a"}},
		"no layouts":       {data: map[string]string{"config.yaml": "version: v1\n"}, layouts: "has no layouts"},
		"an empty file":    {data: map[string]string{"config.yaml": ""}, layouts: "has no layouts"},
		"no YAML":          {data: map[string]string{"config.yaml": "a: b: c"}, layouts: "cannot be read: "},
		"metrics that are": {data: map[string]string{"dcgm-metrics.csv": "DCGM_FI_DEV_GPU_TEMP, gauge, x"}},
		"metrics that are not": {
			data: map[string]string{"dcgm-metrics.csv": "DCGM_FI_DEV_GPU_TEMP, gage, x"},
			problems: map[string][]string{"dcgm-metrics.csv": {
				"line 1: type gage is unknown: use gauge, counter, histogram, summary, label",
			}},
		},
		"files that their readers do not take": {
			data: map[string]string{
				"config.yaml":  "version: v1\nmig-configs: {a: []}\n",
				"clients.yaml": "version: v1\nsystemd-services: []\nservices: []\n",
				"nvidia.conf":  "options nvidia A=1\n", "nvidia-uvm.conf": "A=1\n",
			},
			problems: map[string][]string{
				"config.yaml":  {"line 2: layout a must be a list with an entry for each kind of GPU"},
				"clients.yaml": {"line 3: key services is unknown: use version, systemd-services"},
				"nvidia.conf": {"line 1: has the form of modprobe.d, which the driver container adds itself: " +
					"write the parameters alone, such as NAME=VALUE"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			content := observe.ConfigMapContent(&corev1.ConfigMap{Data: test.data})
			if (content.LayoutsProblem == "") != (test.layouts == "") ||
				!strings.HasPrefix(content.LayoutsProblem, test.layouts) {
				t.Errorf("layouts: %q, want %q", content.LayoutsProblem, test.layouts)
			}
			if !reflect.DeepEqual(content.FileProblems, test.problems) {
				t.Errorf("files: %q, want %q", content.FileProblems, test.problems)
			}
		})
	}
}
