package manifests

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/clusterpolicy/gpu-operator/config"
	"github.com/clusterpolicy/gpu-operator/internal/version"
	"github.com/clusterpolicy/gpu-operator/test/pinned"
)

const (
	repo      = "../.."
	namespace = "gpu-operator"
)

// source is what one cluster gets at once.
type source struct {
	name    string
	objects []*unstructured.Unstructured
}

// sources are all manifests of the project. What the operator renders comes with config/default, whose
// accounts it uses.
func sources(t *testing.T) []source {
	t.Helper()
	g := NewWithT(t)
	installed, err := config.Build(repo + "/config/default")
	g.Expect(err).NotTo(HaveOccurred())
	all := []source{
		{"config/default", installed},
		{"config/default and config/network-policy", overlay(t, "config/network-policy")},
		{"config/default and config/openshift", overlay(t, "config/openshift")},
		{"the chart", chart(t)},
		// Each part that is off by default and brings an object.
		{"the chart, all parts", chart(t, "--values", "testdata/all-parts.yaml")},
	}
	for _, rendered := range operandSources(t) {
		rendered.objects = slices.Concat(installed, rendered.objects)
		all = append(all, rendered)
	}
	return all
}

// overlay is config/default with a component, as a user's overlay has it.
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

// chart is what helm template prints for the flags, with the definition and the hooks.
func chart(t *testing.T, flags ...string) []*unstructured.Unstructured {
	t.Helper()
	g := NewWithT(t)
	helm, err := pinned.Tool(repo, "helm", "helm", "helm.sh/helm/v4")
	g.Expect(err).NotTo(HaveOccurred())
	args := append([]string{
		"template", "gpu-operator", repo + "/config/helm/gpu-operator", "--include-crds",
		"--namespace", namespace, "--kube-version", version.OldestKubernetes + ".0",
	}, flags...)
	cmd := exec.CommandContext(t.Context(), helm, args...)
	home := t.TempDir()
	// Nothing of the person who runs the tests, such as repositories or plugins.
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "HELM_CACHE_HOME=" + home, "HELM_CONFIG_HOME=" + home, "HELM_DATA_HOME=" + home}
	var printed, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &complaint
	g.Expect(cmd.Run()).To(Succeed(), "%s", &complaint)
	objects, err := decode(printed.String())
	g.Expect(err).NotTo(HaveOccurred())
	return objects
}

// decode splits YAML documents into objects.
func decode(text string) ([]*unstructured.Unstructured, error) {
	decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	var objects []*unstructured.Unstructured
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("decoding manifests: %w", err)
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}
