package helm

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
)

// What OLM and catalogues ask of a bundle, beside what the player asks.
func TestTheBundleIsWhatCataloguesTake(t *testing.T) {
	p := openBundle(t, namespace)
	p.Expect(p.csv.Metadata.Name).To(Equal("gpu-operator.v" + p.csv.Spec.Version))
	p.Expect(p.csv.Spec.MinKubeVersion).To(Equal(version.OldestKubernetes + ".0"))
	var modes []string
	for _, mode := range p.csv.Spec.InstallModes {
		if mode.Supported {
			modes = append(modes, mode.Type)
		}
	}
	p.Expect(modes).To(ConsistOf("OwnNamespace"))
	p.Expect(p.csv.Spec.InstallModes).To(HaveLen(4), "OLM wants all modes to be told")
	p.Expect(p.csv.Spec.Definitions.Owned).To(HaveLen(1))
	p.Expect(p.csv.Spec.Definitions.Owned[0].Name).To(Equal("clusterpolicies.nvidia.com"))
	p.Expect(p.beside).To(ContainElement(And(
		HaveField("GetKind()", "CustomResourceDefinition"), HaveField("GetName()", p.csv.Spec.Definitions.Owned[0].Name))))
	p.Expect(p.examples()).To(ConsistOf(HaveField("Kind", "ClusterPolicy")))
	container := p.csv.Spec.Install.Spec.Deployments[0].Spec.Template.Spec.Containers[0]
	p.Expect(p.csv.Metadata.Annotations).To(HaveKeyWithValue("containerImage", container.Image))
	p.Expect(p.csv.Spec.RelatedImages).To(ContainElement(HaveField("Image", container.Image)))

	annotations := struct {
		Annotations map[string]string `json:"annotations"`
	}{}
	text, err := os.ReadFile(filepath.Join(bundle, "metadata", "annotations.yaml"))
	p.Expect(err).NotTo(HaveOccurred())
	p.Expect(yaml.UnmarshalStrict(text, &annotations)).To(Succeed())
	dockerfile, err := os.ReadFile(filepath.Join(bundle, "bundle.Dockerfile"))
	p.Expect(err).NotTo(HaveOccurred())
	for key, value := range annotations.Annotations {
		p.Expect(string(dockerfile)).To(ContainSubstring("LABEL " + key + "=" + value + "\n"))
		if strings.HasSuffix(value, "/") {
			p.Expect(filepath.Join(bundle, value)).To(BeADirectory())
			p.Expect(string(dockerfile)).To(ContainSubstring("COPY " + strings.TrimSuffix(value, "/") + " /" + value + "\n"))
		}
	}
}

// examples are the objects that consoles offer to create.
func (p *player) examples() []*v1.ClusterPolicy {
	p.t.Helper()
	var examples []*v1.ClusterPolicy
	decoder := json.NewDecoder(strings.NewReader(p.csv.Metadata.Annotations["alm-examples"]))
	decoder.DisallowUnknownFields()
	p.Expect(decoder.Decode(&examples)).To(Succeed())
	return examples
}

// TestTheBundleBringsNodesToReady plays OLM: it makes what the bundle says, and runs the operator with the account
// and no other rights. There are no admission policies, so that another labels the nodes; the operator says how
// to have its own discovery, and has it once an administrator does so.
func TestTheBundleBringsNodesToReady(t *testing.T) {
	const in = "nvidia-gpu-operator"
	b := newBed(t, 2)
	p := openBundle(t, in)
	mark, begin := b.mark(), time.Now()
	b.Expect(b.client.Create(t.Context(), p.suggestedNamespace())).To(Succeed())
	b.Expect(cluster.InstallObjects(t.Context(), b.cluster.Config, p.objects())).To(Succeed())
	b.run(in)
	b.Expect(b.client.Create(t.Context(), p.examples()[0])).To(Succeed())
	b.awaitReady()
	t.Logf("ready after %s", time.Since(begin).Round(100*time.Millisecond))
	const without = "node discovery is off as ValidatingAdmissionPolicyBinding gpu-operator-node-discovery is missing: " +
		"apply config/admission, or let Node Feature Discovery label the nodes"
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
func (p *player) suggestedNamespace() client.Object {
	p.t.Helper()
	namespace := &unstructured.Unstructured{}
	text := p.csv.Metadata.Annotations["operatorframework.io/suggested-namespace-template"]
	p.Expect(namespace.UnmarshalJSON([]byte(text))).To(Succeed())
	p.Expect(namespace.GetName()).To(Equal(p.in))
	return namespace
}
