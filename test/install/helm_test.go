package install

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/version"
	"github.com/clusterpolicy/gpu-operator/test/packaged"
)

const (
	repo      = "../.."
	bundle    = repo + "/bundle"
	release   = "gpu-operator"
	namespace = "gpu-operator"
)

// chart is the folder of a released chart, as users get it.
var chart string

// placeholder is the image in config/manager and in the bundle of a working tree.
const placeholder = "IMAGE-NOT-SET:not-a-release-set-IMG-or-kustomize-images"

// render returns what helm template prints for the flags.
func render(t *testing.T, flags ...string) (string, error) {
	t.Helper()
	args := append([]string{
		"template", release, chart, "--namespace", namespace, "--kube-version", version.NewestKubernetes + ".0",
	}, flags...)
	return packaged.Helm(t.Context(), repo, t.TempDir(), nil, args...)
}

// set is short, as tables use it.
var set = packaged.Sets

// find returns the object of this kind and name; nil if there is none.
func find(objects []*unstructured.Unstructured, kind, name string) *unstructured.Unstructured {
	for _, o := range objects {
		if o.GetKind() == kind && o.GetName() == name {
			return o
		}
	}
	return nil
}

// policyOf returns the ClusterPolicy among the objects, decoded strictly.
func policyOf(g *WithT, objects []*unstructured.Unstructured) *v1.ClusterPolicy {
	found := find(objects, "ClusterPolicy", "cluster-policy")
	g.Expect(found).NotTo(BeNil(), "the chart creates a ClusterPolicy")
	text, err := found.MarshalJSON()
	g.Expect(err).NotTo(HaveOccurred())
	policy := &v1.ClusterPolicy{}
	g.Expect(yaml.UnmarshalStrict(text, policy)).To(Succeed())
	return policy
}
