package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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
