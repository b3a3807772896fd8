package manifests

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterpolicy/gpu-operator/config"
	"github.com/clusterpolicy/gpu-operator/internal/names/version"
	"github.com/clusterpolicy/gpu-operator/test/packaged"
)

const (
	repo      = "../.."
	namespace = "gpu-operator"
)

// source is the set of objects of one installation.
type source struct {
	name    string
	objects []*unstructured.Unstructured
}

// sources returns all manifests of the project. What the operator renders comes with config/default, whose accounts
// it uses.
func sources(t *testing.T) []source {
	t.Helper()
	g := NewWithT(t)
	installed, err := config.Build(repo + "/config/default")
	g.Expect(err).NotTo(HaveOccurred())
	all := []source{
		{"config/default", installed},
		{"config/default and config/network-policy", overlay(t, "config/network-policy")},
		{"config/default and config/openshift", overlay(t, "config/openshift")},
		{"config/default and config/openshift-monitoring", overlay(t, "config/openshift-monitoring")},
		{"config/default and config/gpu-pods", overlay(t, "config/gpu-pods/deny")},
		{"the chart", chart(t)},
		// Each part that is disabled by default and adds an object.
		{"the chart, all parts", chart(t, "--values", "testdata/all-parts.yaml")},
		{"the bundle", bundle(t)},
	}
	for _, rendered := range operandSources(t) {
		rendered.objects = slices.Concat(installed, rendered.objects)
		all = append(all, rendered)
	}
	return all
}

// overlay returns config/default with a component, as in a user's overlay.
func overlay(t *testing.T, component string) []*unstructured.Unstructured {
	t.Helper()
	g := NewWithT(t)
	dir := t.TempDir()
	root, err := filepath.Abs(repo)
	g.Expect(err).NotTo(HaveOccurred())
	up, err := filepath.Rel(dir, root)
	g.Expect(err).NotTo(HaveOccurred())
	text := fmt.Sprintf("resources: [%s/config/default]\ncomponents: [%s/%s]\n", up, up, component)
	g.Expect(os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600)).To(Succeed())
	objects, err := config.Build(dir)
	g.Expect(err).NotTo(HaveOccurred())
	return objects
}

// chart returns what helm template prints for the flags, with the CRD and the hooks.
func chart(t *testing.T, flags ...string) []*unstructured.Unstructured {
	t.Helper()
	g := NewWithT(t)
	args := append([]string{
		"template", "gpu-operator", repo + "/" + packaged.Chart, "--include-crds",
		"--namespace", namespace, "--kube-version", version.OldestKubernetes + ".0",
		"--set", "operator.repository=registry.example.com",
	}, flags...)
	printed, err := packaged.Helm(t.Context(), repo, t.TempDir(), nil, args...)
	g.Expect(err).NotTo(HaveOccurred())
	objects, err := packaged.Decode(printed)
	g.Expect(err).NotTo(HaveOccurred())
	return objects
}

// bundle returns what the Operator Lifecycle Manager creates from the bundle.
func bundle(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	g := NewWithT(t)
	opened, err := packaged.OpenBundle(repo + "/bundle")
	g.Expect(err).NotTo(HaveOccurred())
	objects, err := opened.Objects(namespace)
	g.Expect(err).NotTo(HaveOccurred())
	return objects
}
