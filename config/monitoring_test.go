package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/clusterpolicy/gpu-operator/config"
)

// OpenShift's monitoring looks only into labelled namespaces, and needs rights there.
func TestOpenShiftMonitoring(t *testing.T) {
	g := NewWithT(t)
	const label = "openshift.io/cluster-monitoring"
	plain, monitored := withComponents(t, "openshift"), withComponents(t, "openshift", "openshift-monitoring")
	g.Expect(plain["Namespace/gpu-operator"].GetLabels()).NotTo(HaveKey(label))
	labels := plain["Namespace/gpu-operator"].GetLabels()
	labels[label] = "true"
	g.Expect(monitored["Namespace/gpu-operator"].GetLabels()).To(Equal(labels))

	binding := monitored["RoleBinding/gpu-operator-prometheus"]
	g.Expect(binding).NotTo(BeNil())
	g.Expect(binding.GetNamespace()).To(Equal("gpu-operator"))
	g.Expect(binding.Object["subjects"]).To(ConsistOf(map[string]any{
		"kind": "ServiceAccount", "name": "prometheus-k8s", "namespace": "openshift-monitoring",
	}))
	role := monitored["Role/gpu-operator-prometheus"]
	g.Expect(role.Object["rules"]).To(HaveEach(HaveKeyWithValue("verbs", ConsistOf("get", "list", "watch"))))
	g.Expect(monitored).To(HaveLen(len(plain)+2), "the component adds nothing else")
}

// The rules about GPUs are objects of the operator's namespace that the types of the Prometheus operator can hold, and
// nothing else.
func TestRulesAboutGPUs(t *testing.T) {
	g := NewWithT(t)
	plain := withComponents(t)
	rules := []string{"gpu-operator-alerts", "gpu-operator-parameters", "gpu-operator-recording"}
	for _, test := range []struct{ components, rules []string }{
		{[]string{"monitoring"}, rules},
		{[]string{"monitoring/aliases"}, []string{"gpu-operator-aliases"}},
		{[]string{"monitoring", "monitoring/aliases"}, append([]string{"gpu-operator-aliases"}, rules...)},
	} {
		built := withComponents(t, test.components...)
		g.Expect(built).To(HaveLen(len(plain)+len(test.rules)), "%s add nothing else", test.components)
		for _, name := range test.rules {
			object := built["PrometheusRule/"+name]
			g.Expect(object).NotTo(BeNil(), name)
			g.Expect(object.GetNamespace()).To(Equal("gpu-operator"))
			text, err := object.MarshalJSON()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(yaml.UnmarshalStrict(text, &monitoringv1.PrometheusRule{})).To(Succeed(), name)
		}
	}
}

// withComponents returns the objects of config/default with components, by kind and name.
func withComponents(t *testing.T, names ...string) map[string]*unstructured.Unstructured {
	t.Helper()
	g := NewWithT(t)
	here, err := filepath.Abs(".")
	g.Expect(err).NotTo(HaveOccurred())
	overlay := t.TempDir()
	up, err := filepath.Rel(overlay, here)
	g.Expect(err).NotTo(HaveOccurred())
	text := fmt.Sprintf("resources: [%s/default]\ncomponents:\n", up)
	for _, name := range names {
		text += fmt.Sprintf("  - %s/%s\n", up, name)
	}
	g.Expect(os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(text), 0o600)).To(Succeed())
	objects, err := config.Build(overlay)
	g.Expect(err).NotTo(HaveOccurred())
	found := map[string]*unstructured.Unstructured{}
	for _, object := range objects {
		found[object.GetKind()+"/"+object.GetName()] = object
	}
	return found
}
