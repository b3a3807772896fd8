package install

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/clusterpolicy/gpu-operator/internal/names/version"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/packaged"
)

// mirror is the only registry that nodes of an air-gapped cluster reach.
const mirror = "mirror.local:5000"

// allOperands installs everything that has an image of its own on a node for containers.
const allOperands = `
dcgm: {enabled: true}
gds: {enabled: true}
gdrcopy: {enabled: true}
nodeStatusExporter: {enabled: true}
driver: {rdma: {enabled: true}}
`

// TestAnAirGappedCluster installs with a mirror for each repository of the chart, in a path of its own: the nodes
// become ready, every container uses the path of its block, and no object names another registry.
func TestAnAirGappedCluster(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, 3)
	capable := client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata": {"labels": {"nvidia.com/mig.capable": "true"}}}`))
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gpu-00000"}}
	e.Expect(e.client.Patch(t.Context(), node, capable)).To(Succeed(), "the MIG manager runs there only")
	before := map[string]bool{}
	for _, object := range e.objects() {
		before[object.GetKind()+object.GetNamespace()+object.GetName()] = true
	}
	values := map[string]any{}
	e.Expect(yaml.Unmarshal([]byte(allOperands), &values)).To(Succeed())
	blocks := repositoryBlocks(e.WithT)
	e.Expect(blocks).To(ContainElements("operator", "validator", "driver", "driver.manager", "gfd", "migManager"))
	for _, block := range blocks {
		e.Expect(unstructured.SetNestedField(values, mirrorOf(block), append(strings.Split(block, "."), "repository")...)).
			To(Succeed())
	}
	text, err := yaml.Marshal(values)
	e.Expect(err).NotTo(HaveOccurred())
	file := filepath.Join(t.TempDir(), "mirror.yaml")
	e.Expect(os.WriteFile(file, text, 0o600)).To(Succeed())

	e.helm("install", release, chart, "--create-namespace", "--values", file)
	e.run(namespace, e.variablesOfTheDeployment()...)
	e.awaitReady()
	e.everyContainerUsesTheMirror()
	foreign := func() []string {
		var found []string
		for _, object := range e.objects() {
			if !before[object.GetKind()+object.GetNamespace()+object.GetName()] {
				found = append(found, foreignReferences(object)...)
			}
		}
		return found
	}
	e.Expect(foreign()).To(BeEmpty())

	// The same search finds a block without the mirror.
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec": {"gdrcopy": {"repository": null}}}`))
	e.Expect(e.client.Patch(t.Context(), e.policy(), patch)).To(Succeed())
	e.Eventually(foreign).WithTimeout(time.Minute).Should(ContainElement(And(
		HavePrefix("DaemonSet nvidia-driver-daemonset: nvcr.io/"), ContainSubstring("/gdrdrv:"))))
}

// repositoryBlocks returns the blocks of the chart's values that have a repository, as dotted paths.
func repositoryBlocks(g *WithT) []string {
	text, err := os.ReadFile(chart + "/values.schema.json")
	g.Expect(err).NotTo(HaveOccurred())
	schema := map[string]any{}
	g.Expect(json.Unmarshal(text, &schema)).To(Succeed())
	var blocks []string
	var walk func(node map[string]any, path []string)
	walk = func(node map[string]any, path []string) {
		properties, _ := node["properties"].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(properties)) {
			if name == "repository" {
				blocks = append(blocks, strings.Join(path, "."))
			}
			if below, isBlock := properties[name].(map[string]any); isBlock {
				walk(below, append(slices.Clone(path), name))
			}
		}
	}
	walk(schema, nil)
	return blocks
}

// mirrorOf returns the repository for a block.
func mirrorOf(block string) string {
	return mirror + "/" + strings.ToLower(strings.ReplaceAll(block, ".", "/"))
}

// objects returns all of the cluster but Helm's records.
func (e *env) objects() []*unstructured.Unstructured {
	e.t.Helper()
	all, err := cluster.Objects(e.t.Context(), e.cluster.Config)
	e.Expect(err).NotTo(HaveOccurred())
	return slices.DeleteFunc(all, func(object *unstructured.Unstructured) bool {
		kind, _, _ := unstructured.NestedString(object.Object, "type")
		return kind == "helm.sh/release.v1"
	})
}

// variablesOfTheDeployment returns the environment that the chart gives the operator, as NAME=value.
func (e *env) variablesOfTheDeployment() (variables []string) {
	e.t.Helper()
	deployment := &appsv1.Deployment{}
	e.Expect(e.client.Get(e.t.Context(), client.ObjectKey{Namespace: namespace, Name: "gpu-operator"},
		deployment)).To(Succeed())
	for _, variable := range deployment.Spec.Template.Spec.Containers[0].Env {
		if variable.ValueFrom == nil {
			variables = append(variables, variable.Name+"="+variable.Value)
		}
	}
	e.Expect(variables).To(ContainElement("OPERATOR_IMAGE=" + mirrorOf("operator") + "/gpu-operator:v" +
		packaged.ReleaseVersion))
	return variables
}

// blockOf has the block of the values for the container of each operand that does not run the operator's own image.
var blockOf = map[string]string{
	"nvidia-driver-ctr": "driver", "nvidia-fs-ctr": "gds", "nvidia-gdrcopy-ctr": "gdrcopy",
	"nvidia-peermem-ctr": "driver", "k8s-driver-manager": "driver.manager", "nvidia-container-toolkit-ctr": "toolkit",
	"nvidia-device-plugin": "devicePlugin", "gpu-feature-discovery": "gfd", "nvidia-mig-manager": "migManager",
	"nvidia-dcgm-ctr": "dcgm", "nvidia-dcgm-exporter": "dcgmExporter",
}

// everyContainerUsesTheMirror checks the images of all pods in the namespace: the operator's own comes from the path of
// the operator or of a block that runs it.
func (e *env) everyContainerUsesTheMirror() {
	e.t.Helper()
	pods := &corev1.PodList{}
	e.Expect(e.client.List(e.t.Context(), pods, client.InNamespace(namespace))).To(Succeed())
	seen, own := map[string]bool{}, 0
	for i := range pods.Items {
		spec := pods.Items[i].Spec
		for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
			if block, theirs := blockOf[c.Name]; theirs {
				e.Expect(c.Image).To(HavePrefix(mirrorOf(block)+"/"), c.Name)
				seen[c.Name] = true
				continue
			}
			own++
			e.Expect(c.Image).To(BeElementOf(
				mirrorOf("operator")+"/gpu-operator:v"+packaged.ReleaseVersion,
				// The tag is the version of the program, which is not of a release here.
				mirrorOf("validator")+"/gpu-operator:"+version.Version,
				mirrorOf("nodeStatusExporter")+"/gpu-operator:"+version.Version,
			), c.Name)
		}
	}
	e.Expect(own).To(BeNumerically(">", len(seen)))
	e.Expect(slices.Collect(maps.Keys(seen))).To(ConsistOf(slices.Collect(maps.Keys(blockOf))))
}

// reference is an image in a registry, with a tag or a digest.
var reference = regexp.MustCompile(
	`(?:[a-z0-9-]+\.)+[a-z0-9-]+(?::[0-9]+)?/[a-z0-9][a-z0-9._/-]*(?::[A-Za-z0-9_][A-Za-z0-9_.-]*|@sha256:[0-9a-f]{64})`)

// registries must not occur in any form: those of the defaults and of the release, and public ones.
var registries = regexp.MustCompile(
	`(?:nvcr\.io|ghcr\.io|docker\.io|quay\.io|registry\.k8s\.io|registry\.example\.com)\S*`)

// foreignReferences returns what an object names in other registries than the mirror.
func foreignReferences(object *unstructured.Unstructured) (found []string) {
	// Texts of a definition have examples.
	isDefinition, texts := object.GetKind() == "CustomResourceDefinition", []string{"description", "message"}
	var walk func(key string, value any)
	walk = func(key string, value any) {
		switch typed := value.(type) {
		case map[string]any:
			for name, inner := range typed {
				if name != "managedFields" && !(isDefinition && slices.Contains(texts, name)) {
					walk(name, inner)
				}
			}
		case []any:
			for _, inner := range typed {
				walk(key, inner)
			}
		case string:
			names := slices.Concat(reference.FindAllString(typed, -1), registries.FindAllString(typed, -1))
			if key == "image" {
				names = append(names, typed)
			}
			for _, name := range names {
				if !strings.HasPrefix(name, mirror+"/") {
					found = append(found, object.GetKind()+" "+object.GetName()+": "+name)
				}
			}
		}
	}
	walk("", object.Object)
	return found
}
