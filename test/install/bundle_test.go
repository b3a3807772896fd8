package install

import (
	"encoding/json"
	"encoding/xml"
	"net/mail"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/internal/names/version"
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
	g.Expect(modes).To(ConsistOf("OwnNamespace", "SingleNamespace"))
	g.Expect(csv.Spec.InstallModes).To(HaveLen(4), "OLM requires all install modes to be listed")
	g.Expect(csv.Spec.Definitions.Owned).To(HaveExactElements(
		HaveField("Name", "clusterpolicies.nvidia.com"), HaveField("Name", "nvidiadrivers.nvidia.com")))
	for _, owned := range csv.Spec.Definitions.Owned {
		g.Expect(opened.Beside).To(ContainElement(And(
			HaveField("GetKind()", "CustomResourceDefinition"), HaveField("GetName()", owned.Name))))
	}
	policy, driver := examples(g, opened)
	g.Expect([]string{policy.Kind, driver.Kind}).To(Equal([]string{"ClusterPolicy", "NVIDIADriver"}))
	container := csv.Spec.Install.Spec.Deployments[0].Spec.Template.Spec.Containers[0]
	// Not the namespace that the OperatorGroup selects, which may be another one in SingleNamespace.
	g.Expect(container.Env).To(ContainElement(And(HaveField("Name", "OPERATOR_NAMESPACE"),
		HaveField("ValueFrom.FieldRef.FieldPath", "metadata.namespace"))))
	g.Expect(csv.Metadata.Annotations).To(HaveKeyWithValue("containerImage", container.Image))
	g.Expect(csv.Spec.RelatedImages).To(ContainElement(HaveField("Image", container.Image)))
}

// What consoles show of the operator: an icon, whom to contact, and a form with all blocks of the spec.
func TestConsolesShowTheOperator(t *testing.T) {
	g := NewWithT(t)
	csv := serviceVersion(g, "")
	content, err := csv.MarshalJSON()
	g.Expect(err).NotTo(HaveOccurred())
	shown := struct {
		Spec struct {
			Icon []struct {
				Data      []byte `json:"base64data"`
				MediaType string `json:"mediatype"`
			} `json:"icon"`
			Provider    struct{ Name, URL string }     `json:"provider"`
			Maintainers []struct{ Name, Email string } `json:"maintainers"`
			Links       []struct{ Name, URL string }   `json:"links"`
			Keywords    []string                       `json:"keywords"`
			Description string                         `json:"description"`
		} `json:"spec"`
	}{}
	g.Expect(json.Unmarshal(content, &shown)).To(Succeed())
	g.Expect(shown.Spec.Icon).To(HaveLen(1))
	g.Expect(shown.Spec.Icon[0].MediaType).To(Equal("image/svg+xml"))
	root := struct{ XMLName xml.Name }{}
	g.Expect(xml.Unmarshal(shown.Spec.Icon[0].Data, &root)).To(Succeed())
	g.Expect(root.XMLName.Local).To(Equal("svg"))
	g.Expect(shown.Spec.Provider.Name).NotTo(BeEmpty())
	g.Expect(shown.Spec.Provider.URL).To(HavePrefix("https://"))
	g.Expect(csv.GetAnnotations()).To(HaveKeyWithValue("support", HaveSuffix("/issues")))
	for _, maintainer := range shown.Spec.Maintainers {
		_, err := mail.ParseAddress(maintainer.Email)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(maintainer.Email).NotTo(ContainSubstring("noreply"), "an address that is not read helps no user")
	}
	g.Expect(shown.Spec.Links).NotTo(BeEmpty())
	for _, link := range shown.Spec.Links {
		if page, isPage := strings.CutPrefix(link.URL, "https://github.com/clusterpolicy/gpu-operator/blob/main/"); isPage {
			g.Expect(filepath.Join(repo, page)).To(BeARegularFile())
		}
	}
	g.Expect(shown.Spec.Keywords).To(ContainElements("gpu", "nvidia"))
	g.Expect(shown.Spec.Description).To(ContainSubstring("kubectl apply -f https://raw.githubusercontent.com/"))
}

// The form of consoles has all blocks of the spec, and only fields that the definition has.
func TestConsolesDescribeTheFields(t *testing.T) {
	g := NewWithT(t)
	opened := openBundle(g)
	schemas := map[string]*apiextensionsv1.JSONSchemaProps{}
	for _, object := range opened.Beside {
		if object.GetKind() == "CustomResourceDefinition" {
			definition := &apiextensionsv1.CustomResourceDefinition{}
			g.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, definition)).To(Succeed())
			schemas[definition.Name] = definition.Spec.Versions[0].Schema.OpenAPIV3Schema
		}
	}
	g.Expect(opened.CSV.Spec.Definitions.Owned).To(HaveLen(len(schemas)))
	for _, owned := range opened.CSV.Spec.Definitions.Owned {
		consolesDescribe(g, owned, schemas[owned.Name])
	}
}

func consolesDescribe(g *WithT, owned packaged.OwnedDefinition, schema *apiextensionsv1.JSONSchemaProps) {
	described := map[string]bool{}
	for of, descriptors := range map[string][]packaged.Descriptor{
		"spec": owned.SpecDescriptors, "status": owned.StatusDescriptors,
	} {
		for _, d := range descriptors {
			field := schema.Properties[of]
			for name := range strings.SplitSeq(d.Path, ".") {
				g.Expect(field.Properties).To(HaveKey(name), d.Path)
				field = field.Properties[name]
			}
			g.Expect(d.Description).To(Equal(field.Description), d.Path)
			g.Expect(d.DisplayName).NotTo(BeEmpty(), d.Path)
			g.Expect(described).NotTo(HaveKey(of + "." + d.Path))
			described[of+"."+d.Path] = true
		}
	}
	for block := range schema.Properties["spec"].Properties {
		g.Expect(described).To(HaveKey("spec." + block))
	}
	g.Expect(described).To(HaveKey("status.state"))
	g.Expect(described).To(HaveKey("status.conditions"))
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
	// The release with Kubernetes 1.32, and later ones.
	g.Expect(annotations.Annotations).To(HaveKeyWithValue("com.redhat.openshift.versions", "v4.19"))
	for key, value := range annotations.Annotations {
		g.Expect(string(dockerfile)).To(ContainSubstring("LABEL " + key + "=" + value + "\n"))
		if strings.HasSuffix(value, "/") {
			g.Expect(filepath.Join(bundle, value)).To(BeADirectory())
			g.Expect(string(dockerfile)).To(ContainSubstring("COPY " + strings.TrimSuffix(value, "/") + " /" + value + "\n"))
		}
	}
}

// examples returns the policies that consoles offer to create.
func examples(g *WithT, opened *packaged.Bundle) (*v1.ClusterPolicy, *v1alpha1.NVIDIADriver) {
	policy, driver := &v1.ClusterPolicy{}, &v1alpha1.NVIDIADriver{}
	decoder := json.NewDecoder(strings.NewReader(opened.CSV.Metadata.Annotations["alm-examples"]))
	decoder.DisallowUnknownFields()
	g.Expect(decoder.Decode(&[]any{policy, driver})).To(Succeed())
	return policy, driver
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
	restored := cluster.Restored(t, e.cluster.Config)
	mark, begin := e.mark(), time.Now()
	e.Expect(e.client.Create(t.Context(), suggestedNamespace(e.WithT, opened, in))).To(Succeed())
	e.Expect(cluster.InstallObjects(t.Context(), e.cluster.Config, objects)).To(Succeed())
	// The cluster has a proxy, which OLM sets in the Deployment.
	e.run(in, "HTTPS_PROXY=http://proxy.invalid:3128", "NO_PROXY=127.0.0.1")
	example, _ := examples(e.WithT, opened)
	e.Expect(e.client.Create(t.Context(), example)).To(Succeed())
	e.awaitReady()
	driver := &appsv1.DaemonSet{}
	key := client.ObjectKey{Namespace: in, Name: "nvidia-driver-daemonset"}
	e.Expect(e.client.Get(t.Context(), key, driver)).To(Succeed())
	e.Expect(driver.Spec.Template.Spec.Containers[0].Env).To(ContainElement(
		corev1.EnvVar{Name: "HTTPS_PROXY", Value: "http://proxy.invalid:3128"}))
	t.Logf("ready after %s", time.Since(begin).Round(100*time.Millisecond))
	const without = "node discovery is disabled because ValidatingAdmissionPolicyBinding gpu-operator-node-agents is " +
		"missing: " +
		"apply config/admission, or use Node Feature Discovery"
	e.Expect(e.policy().Status.Operands).To(ContainElement(And(
		HaveField("Name", "node-discovery"), HaveField("State", v1.OperandDisabled), HaveField("Message", without))))
	e.Expect(meta.FindStatusCondition(e.policy().Status.Conditions, v1.ConditionAdmissionPolicyMissing)).To(
		HaveField("Message", HaveSuffix("run kubectl apply -f "+
			"https://raw.githubusercontent.com/clusterpolicy/gpu-operator/main/bundle/admission.yaml")))
	e.Expect(e.daemonSets(in)).NotTo(ContainElement("nvidia-node-discovery"))

	e.Expect(cluster.InstallObjects(t.Context(), e.cluster.Config, admissionManifest(e.WithT))).To(Succeed())
	e.Eventually(func() []string {
		return e.daemonSets(in)
	}).WithTimeout(time.Minute).Should(ContainElement("nvidia-node-discovery"))
	e.awaitReady()
	e.Eventually(func() *metav1.Condition {
		return meta.FindStatusCondition(e.policy().Status.Conditions, v1.ConditionAdmissionPolicyMissing)
	}).WithTimeout(time.Minute).Should(BeNil())
	e.removeAsDocumented(in, objects)
	restored()
	e.noneForbidden(in, mark)
}

// suggestedNamespace returns the one that OpenShift's console creates.
func suggestedNamespace(g *WithT, opened *packaged.Bundle, name string) client.Object {
	suggested := &unstructured.Unstructured{}
	text := opened.CSV.Metadata.Annotations["operatorframework.io/suggested-namespace-template"]
	g.Expect(suggested.UnmarshalJSON([]byte(text))).To(Succeed())
	g.Expect(suggested.GetName()).To(Equal(name))
	return suggested
}
