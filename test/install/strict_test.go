package install

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/packaged"
)

// olmDefinition is OLM's CustomResourceDefinition of a ClusterServiceVersion.
const olmDefinition = "testdata/clusterserviceversions.yaml"

// serviceVersion returns the ClusterServiceVersion of the bundle as OLM creates it in a namespace.
func serviceVersion(g *WithT, in string) *unstructured.Unstructured {
	text, err := os.ReadFile(filepath.Join(bundle, "manifests", "gpu-operator.clusterserviceversion.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	return only(g, string(text), in)
}

// only decodes the one object of a manifest.
func only(g *WithT, text, in string) *unstructured.Unstructured {
	objects, err := packaged.Decode(text)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(objects).To(HaveLen(1))
	objects[0].SetNamespace(in)
	return objects[0]
}

// The API server accepts all objects of the bundle with strict validation, which refuses unknown, duplicate and
// missing fields: the ClusterServiceVersion by OLM's definition, and everything that OLM creates from the bundle.
func TestTheBundleIsValidByStrictSchemas(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	g := NewWithT(t)
	const in = cluster.OperatorNamespace
	strict := strictClient(t, g)
	text, err := os.ReadFile(olmDefinition)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(strict.Create(t.Context(), only(g, string(text), ""))).To(Succeed())
	csv := serviceVersion(g, in)
	g.Eventually(func() error {
		return strict.Create(t.Context(), csv.DeepCopy())
	}).WithTimeout(time.Minute).Should(Succeed())
	stored := csv.DeepCopy()
	g.Expect(strict.Get(t.Context(), client.ObjectKeyFromObject(csv), stored)).To(Succeed())
	g.Expect(stored.Object["spec"]).To(Equal(csv.Object["spec"]), "nothing is pruned")

	olmRefuses(t, strict, csv)

	objects, err := openBundle(g).Objects(in)
	g.Expect(err).NotTo(HaveOccurred())
	definition := 0
	for _, object := range objects {
		if object.GetKind() == "CustomResourceDefinition" {
			definition++
			g.Expect(client.IgnoreNotFound(strict.Delete(t.Context(), object.DeepCopy()))).To(Succeed())
		}
		g.Eventually(func() error {
			return strict.Create(t.Context(), object.DeepCopy())
		}).WithTimeout(time.Minute).Should(Succeed(), "%s %s", object.GetKind(), object.GetName())
	}
	g.Expect(definition).To(Equal(2))
}

// olmRefuses checks that the definition refuses what OLM refuses.
func olmRefuses(t *testing.T, strict client.Client, csv *unstructured.Unstructured) {
	t.Helper()
	const first = "customresourcedefinitions.owned.0."
	tests := map[string]struct {
		change func(spec any)
		err    string
	}{
		"a resource without a name": {
			func(spec any) { delete(at(spec, first+"resources.0"), "name") },
			"spec.customresourcedefinitions.owned[0].resources[0].name: Required value",
		},
		"a descriptor without a path": {
			func(spec any) { delete(at(spec, first+"specDescriptors.0"), "path") }, "specDescriptors[0].path: Required value",
		},
		"no install strategy": {
			func(spec any) { delete(at(spec, "install"), "strategy") }, "spec.install.strategy: Required value",
		},
		"an icon without a type": {
			func(spec any) { delete(at(spec, "icon.0"), "mediatype") }, "spec.icon[0].mediatype: Required value",
		},
		"an unknown field": {
			func(spec any) { at(spec, "install")["channels"] = "stable" }, `unknown field "spec.install.channels"`,
		},
		"another type": {
			func(spec any) { at(spec, "provider")["name"] = int64(1) }, "spec.provider.name in body must be of type string",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			changed := csv.DeepCopy()
			changed.SetName("changed")
			test.change(changed.Object["spec"])
			g.Expect(strict.Create(t.Context(), changed)).To(MatchError(ContainSubstring(test.err)))
		})
	}
}

// at returns the object at a path, such as icon.0; nil if there is none.
func at(value any, path string) map[string]any {
	for key := range strings.SplitSeq(path, ".") {
		switch typed := value.(type) {
		case map[string]any:
			value = typed[key]
		case []any:
			if index, err := strconv.Atoi(key); err == nil && index < len(typed) {
				value = typed[index]
			}
		}
	}
	object, _ := value.(map[string]any)
	return object
}

// strictClient starts an API server, and returns a client that is refused what the server would drop.
func strictClient(t *testing.T, g *WithT) client.Client {
	t.Helper()
	config, stop, err := cluster.StartEnvtest(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(stop()).To(Succeed()) })
	plain, err := client.New(config, client.Options{})
	g.Expect(err).NotTo(HaveOccurred())
	return client.WithFieldValidation(plain, metav1.FieldValidationStrict)
}
