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

// What OLM and catalogues ask of a bundle, beside what the player asks.
func TestTheBundleIsWhatCataloguesTake(t *testing.T) {
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
	g.Expect(csv.Spec.InstallModes).To(HaveLen(4), "OLM wants all modes to be told")
	g.Expect(csv.Spec.Definitions.Owned).To(HaveLen(1))
	g.Expect(csv.Spec.Definitions.Owned[0].Name).To(Equal("clusterpolicies.nvidia.com"))
	g.Expect(opened.Beside).To(ContainElement(And(
		HaveField("GetKind()", "CustomResourceDefinition"), HaveField("GetName()", csv.Spec.Definitions.Owned[0].Name))))
	g.Expect(examples(g, opened)).To(ConsistOf(HaveField("Kind", "ClusterPolicy")))
	container := csv.Spec.Install.Spec.Deployments[0].Spec.Template.Spec.Containers[0]
	g.Expect(csv.Metadata.Annotations).To(HaveKeyWithValue("containerImage", container.Image))
	g.Expect(csv.Spec.RelatedImages).To(ContainElement(HaveField("Image", container.Image)))
}

// The image of a bundle says of itself what its annotations say, and holds the folders that they name.
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
	g.Expect(annotations.Annotations).To(HaveKeyWithValue("operators.operatorframework.io.bundle.package.v1", "gpu-operator"))
	for key, value := range annotations.Annotations {
		g.Expect(string(dockerfile)).To(ContainSubstring("LABEL " + key + "=" + value + "\n"))
		if strings.HasSuffix(value, "/") {
			g.Expect(filepath.Join(bundle, value)).To(BeADirectory())
			g.Expect(string(dockerfile)).To(ContainSubstring("COPY " + strings.TrimSuffix(value, "/") + " /" + value + "\n"))
		}
	}
}

// examples are the policies that consoles offer to create.
func examples(g *WithT, opened *packaged.Bundle) []*v1.ClusterPolicy {
	var policies []*v1.ClusterPolicy
	decoder := json.NewDecoder(strings.NewReader(opened.CSV.Metadata.Annotations["alm-examples"]))
	decoder.DisallowUnknownFields()
	g.Expect(decoder.Decode(&policies)).To(Succeed())
	return policies
}

// TestTheBundleBringsNodesToReady plays OLM: it makes what the bundle says, and runs the operator with the account
// and no other rights. There are no admission policies, so that another labels the nodes; the operator says how
// to have its own discovery, and has it once an administrator does so.
func TestTheBundleBringsNodesToReady(t *testing.T) {
	t.Parallel()
	const in = "nvidia-gpu-operator"
	b := newBed(t, 2)
	opened := openBundle(b.WithT)
	objects, err := opened.Objects(in)
	b.Expect(err).NotTo(HaveOccurred())
	mark, begin := b.mark(), time.Now()
	b.Expect(b.client.Create(t.Context(), suggestedNamespace(b.WithT, opened, in))).To(Succeed())
	b.Expect(cluster.InstallObjects(t.Context(), b.cluster.Config, objects)).To(Succeed())
	b.run(in)
	b.Expect(b.client.Create(t.Context(), examples(b.WithT, opened)[0])).To(Succeed())
	b.awaitReady()
	t.Logf("ready after %s", time.Since(begin).Round(100*time.Millisecond))
	const without = "node discovery is disabled because ValidatingAdmissionPolicyBinding gpu-operator-node-discovery is missing: " +
		"apply config/admission, or use Node Feature Discovery"
	b.Expect(b.policy().Status.Operands).To(ContainElement(And(
		HaveField("Name", "node-discovery"), HaveField("State", v1.OperandDisabled), HaveField("Message", without))))
	b.Expect(b.daemonSets(in)).NotTo(ContainElement("nvidia-node-discovery"))

	b.Expect(cluster.Install(t.Context(), b.cluster.Config, filepath.Join(repo, "config/admission"))).To(Succeed())
	b.Eventually(func() []string { return b.daemonSets(in) }).WithTimeout(10 * time.Second).Should(ContainElement("nvidia-node-discovery"))
	b.awaitReady()
	b.noneForbidden(in, mark)
	b.stop()
}

// suggestedNamespace is the one that OpenShift's console makes.
func suggestedNamespace(g *WithT, opened *packaged.Bundle, name string) client.Object {
	suggested := &unstructured.Unstructured{}
	text := opened.CSV.Metadata.Annotations["operatorframework.io/suggested-namespace-template"]
	g.Expect(suggested.UnmarshalJSON([]byte(text))).To(Succeed())
	g.Expect(suggested.GetName()).To(Equal(name))
	return suggested
}
