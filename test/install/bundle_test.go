package install

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/version"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/packaged"
)

func openBundle(g *WithT) *packaged.Bundle {
	opened, err := packaged.OpenBundle(bundle)
	g.Expect(err).NotTo(HaveOccurred())
	return opened
}

// The requirements of OLM and catalogues on a bundle, in addition to those of package packaged.
func TestTheBundleMeetsCatalogueRequirements(t *testing.T) {
	g := NewWithT(t)
	opened := openBundle(g)
	csv := opened.CSV
	g.Expect(csv.Metadata.Name).To(Equal("gpu-operator.v" + csv.Spec.Version))
	g.Expect(csv.Spec.MinKubeVersion).To(Equal(version.OldestKubernetes + ".0"))
	var modes []string
	for _, mode := range csv.Spec.InstallModes {
		if mode.Supported {
			modes = append(modes, mode.Type)
		}
	}
	g.Expect(modes).To(ConsistOf("OwnNamespace"))
	g.Expect(csv.Spec.InstallModes).To(HaveLen(4), "OLM requires all install modes to be listed")
	g.Expect(csv.Spec.Definitions.Owned).To(HaveLen(1))
	g.Expect(csv.Spec.Definitions.Owned[0].Name).To(Equal("clusterpolicies.nvidia.com"))
	g.Expect(opened.Beside).To(ContainElement(And(
		HaveField("GetKind()", "CustomResourceDefinition"), HaveField("GetName()", csv.Spec.Definitions.Owned[0].Name))))
	g.Expect(examples(g, opened)).To(ConsistOf(HaveField("Kind", "ClusterPolicy")))
	container := csv.Spec.Install.Spec.Deployments[0].Spec.Template.Spec.Containers[0]
	g.Expect(csv.Metadata.Annotations).To(HaveKeyWithValue("containerImage", container.Image))
	g.Expect(csv.Spec.RelatedImages).To(ContainElement(HaveField("Image", container.Image)))
}

// The labels of a bundle image match its annotations, and it contains the folders that they name.
func TestTheImageOfTheBundleHasItsParts(t *testing.T) {
	g := NewWithT(t)
	annotations := struct {
		Annotations map[string]string `json:"annotations"`
	}{}
	text, err := os.ReadFile(filepath.Join(bundle, "metadata", "annotations.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(yaml.UnmarshalStrict(text, &annotations)).To(Succeed())
	dockerfile, err := os.ReadFile(filepath.Join(bundle, "bundle.Dockerfile"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(annotations.Annotations).To(HaveKeyWithValue("operators.operatorframework.io.bundle.package.v1",
		"gpu-operator"))
	for key, value := range annotations.Annotations {
		g.Expect(string(dockerfile)).To(ContainSubstring("LABEL " + key + "=" + value + "\n"))
		if strings.HasSuffix(value, "/") {
			g.Expect(filepath.Join(bundle, value)).To(BeADirectory())
			g.Expect(string(dockerfile)).To(ContainSubstring("COPY " + strings.TrimSuffix(value, "/") + " /" + value + "\n"))
		}
	}
}

// examples returns the policies that consoles offer to create.
func examples(g *WithT, opened *packaged.Bundle) []*v1.ClusterPolicy {
	var policies []*v1.ClusterPolicy
	decoder := json.NewDecoder(strings.NewReader(opened.CSV.Metadata.Annotations["alm-examples"]))
	decoder.DisallowUnknownFields()
	g.Expect(decoder.Decode(&policies)).To(Succeed())
	return policies
}

// TestTheBundleMakesNodesReady simulates OLM: it creates the objects of the bundle, and runs the operator with only
// the permissions of its account. Without admission policies, which a bundle cannot contain, Node Feature Discovery
// labels the nodes; the operator reports how to enable its own discovery, which works once an administrator has done
// that.
func TestTheBundleMakesNodesReady(t *testing.T) {
	t.Parallel()
	const in = "nvidia-gpu-operator"
	e := newEnv(t, 2)
	opened := openBundle(e.WithT)
	objects, err := opened.Objects(in)
	e.Expect(err).NotTo(HaveOccurred())
	mark, begin := e.mark(), time.Now()
	e.Expect(e.client.Create(t.Context(), suggestedNamespace(e.WithT, opened, in))).To(Succeed())
	e.Expect(cluster.InstallObjects(t.Context(), e.cluster.Config, objects)).To(Succeed())
	e.run(in)
	e.Expect(e.client.Create(t.Context(), examples(e.WithT, opened)[0])).To(Succeed())
	e.awaitReady()
	t.Logf("ready after %s", time.Since(begin).Round(100*time.Millisecond))
	const without = "node discovery is disabled because ValidatingAdmissionPolicyBinding gpu-operator-node-discovery is " +
		"missing: " +
		"apply config/admission, or use Node Feature Discovery"
	e.Expect(e.policy().Status.Operands).To(ContainElement(And(
		HaveField("Name", "node-discovery"), HaveField("State", v1.OperandDisabled), HaveField("Message", without))))
	e.Expect(e.daemonSets(in)).NotTo(ContainElement("nvidia-node-discovery"))

	e.Expect(cluster.Install(t.Context(), e.cluster.Config, filepath.Join(repo, "config/admission"))).To(Succeed())
	e.Eventually(func() []string {
		return e.daemonSets(in)
	}).WithTimeout(10 * time.Second).Should(ContainElement("nvidia-node-discovery"))
	e.awaitReady()
	e.noneForbidden(in, mark)
	e.stop()
}

// suggestedNamespace returns the one that OpenShift's console creates.
func suggestedNamespace(g *WithT, opened *packaged.Bundle, name string) client.Object {
	suggested := &unstructured.Unstructured{}
	text := opened.CSV.Metadata.Annotations["operatorframework.io/suggested-namespace-template"]
	g.Expect(suggested.UnmarshalJSON([]byte(text))).To(Succeed())
	g.Expect(suggested.GetName()).To(Equal(name))
	return suggested
}
