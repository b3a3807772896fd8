package migrationsteps

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// parsed returns an object of a manifest.
func decoded(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	NewWithT(t).Expect(yaml.Unmarshal([]byte(text), &o.Object)).To(Succeed())
	return o
}

// labelled is a node of Node Feature Discovery with labels that node discovery writes too, and others.
const labelled = `
apiVersion: v1
kind: Node
metadata:
  name: gpu-0
  resourceVersion: "7"
  labels:
    feature.node.kubernetes.io/kernel-version.full: 6.8.0
    feature.node.kubernetes.io/pci-10de.present: "true"
    feature.node.kubernetes.io/cpu-model.family: "6"
    nvidia.com/gpu.product: A100
    nvidia.com/gds.capable: "true"
  annotations:
    nfd.node.kubernetes.io/feature-labels: "cpu-model.family,gone,kernel-version.full,nvidia.com/gds.capable,\
      nvidia.com/gpu.product,pci-10de.present"
    nfd.node.kubernetes.io/taints: example.com/slow=true:NoSchedule
    nfd.node.kubernetes.io/master.version: v0.19.0
spec:
  taints:
  - {key: example.com/slow, value: "true", effect: NoSchedule}
  - {key: example.com/slow, value: "true", effect: NoExecute}
status:
  conditions:
  - {type: Ready, status: "True"}
`

func TestHandOverOfNode(t *testing.T) {
	g := NewWithT(t)
	node := decoded(t, labelled)
	g.Expect(IsTakenOver(node)).To(BeFalse())
	g.Expect(HandOver(node)).To(Equal(map[string]any{
		"metadata": map[string]any{"resourceVersion": "7", "annotations": map[string]any{
			"nfd.node.kubernetes.io/feature-labels": "cpu-model.family,nvidia.com/gds.capable",
			"nfd.node.kubernetes.io/taints":         nil, "nfd.node.kubernetes.io/master.version": nil,
		}},
		"spec": map[string]any{"taints": []any{
			map[string]any{"key": "example.com/slow", "value": "true", "effect": "NoExecute"},
		}},
	}))

	node.SetAnnotations(map[string]string{
		"nfd.node.kubernetes.io/feature-labels":     "cpu-model.family,nvidia.com/gds.capable",
		"nvidia.com/gpu-operator.discovered-labels": "feature.node.kubernetes.io/kernel-version.full",
	})
	g.Expect(HandOver(node)).To(BeNil(), "it is done")
	g.Expect(IsTakenOver(node)).To(BeTrue())
	g.Expect(RemoveUnknown(node)).To(Equal(map[string]any{"metadata": map[string]any{
		"labels":      map[string]any{"feature.node.kubernetes.io/cpu-model.family": nil, "nvidia.com/gds.capable": nil},
		"annotations": map[string]any{"nfd.node.kubernetes.io/feature-labels": nil},
	}}))
	node.SetAnnotations(nil)
	g.Expect(RemoveUnknown(node)).To(BeNil())
	g.Expect(HandOver(node)).To(BeNil())
	g.Expect(unstructured.SetNestedSlice(node.Object, nil, "status", "conditions")).To(Succeed())
	g.Expect(IsTakenOver(node)).To(BeTrue(), "a node whose kubelet does not run is not waited for")
}

const (
	discoveryPod = `
apiVersion: v1
kind: Pod
metadata: {name: discovery, namespace: nvidia, labels: {nvidia.com/gpu-operator.operand: node-discovery}}
spec: {nodeName: gpu-0}
status: {conditions: [{type: Ready, status: "True"}]}
`
	definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: nodefeatures.nfd.k8s-sigs.io
  annotations: {api-approved.kubernetes.io: unapproved, controller-gen.kubebuilder.io/version: v0}
`
	rule = `
apiVersion: nfd.k8s-sigs.io/v1alpha1
kind: NodeFeatureRule
metadata: {name: nvidia-kernel-modules}
`
	feature = `
apiVersion: nfd.k8s-sigs.io/v1alpha1
kind: NodeFeature
metadata: {name: gpu-0, namespace: nvidia, labels: {nfd.node.kubernetes.io/node-name: gpu-0}}
`
	worker = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: worker, namespace: nvidia}
spec: {template: {spec: {containers: [{image: "registry.k8s.io/nfd/node-feature-discovery:v0.19.0"}]}}}
`
	features = `
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: gpu-feature-discovery
  namespace: nvidia
  labels: {nvidia.com/gpu-operator.operand: gpu-feature-discovery}
spec: {template: {spec: {containers: [{image: gfd, env: [{name: USE_NODE_FEATURE_API, value: "true"}]}]}}}
`
)

// kept marks an object as one of NVIDIA's chart.
func kept(o *unstructured.Unstructured) *unstructured.Unstructured {
	o.SetLabels(map[string]string{"app.kubernetes.io/name": "node-feature-discovery"})
	o.SetAnnotations(map[string]string{releaseName: "theirs", releaseNamespace: "nvidia", ResourcePolicy: Keep})
	return o
}

// discovering returns a cluster with Node Feature Discovery of NVIDIA's chart.
func discovering(t *testing.T) *Cluster {
	t.Helper()
	gpuFeature := decoded(t, feature)
	gpuFeature.SetName("nvidia-features-for-gpu-0")
	ofNobody := kept(object("Secret", "of-nobody", ""))
	ofNobody.SetAnnotations(map[string]string{ResourcePolicy: Keep})
	return &Cluster{Objects: []*unstructured.Unstructured{
		decoded(t, labelled), decoded(t, discoveryPod), decoded(t, definition), kept(decoded(t, rule)), decoded(t, feature),
		gpuFeature, kept(decoded(t, worker)), kept(object("Deployment", "nfd-master", "")),
		kept(object("ServiceAccount", "nfd", "")), kept(object("Role", "nfd-worker", "")),
		// What does not count: objects that are not kept, or of no release, a plain node, and what others have.
		object("Secret", "not-kept", "helm nfd"), object("Secret", "of-others", "kept"), ofNobody,
		decoded(t, "apiVersion: v1\nkind: Node\nmetadata: {name: plain}\n"+
			"status: {conditions: [{type: Ready, status: \"True\"}]}"),
		decoded(t, strings.ReplaceAll(definition, "nodefeatures.nfd.k8s-sigs.io", "foos.example.com")),
		decoded(t, strings.NewReplacer("discovery", "other", "True", "False").Replace(discoveryPod)),
	}}
}

func TestHandOver(t *testing.T) {
	g := NewWithT(t)
	c := discovering(t)
	g.Expect(c.HandOverRefusal()).To(BeEmpty())
	before := []string{
		"stop Deployment nvidia/nfd-master", "delete Deployment nvidia/nfd-master", "delete DaemonSet nvidia/worker",
		"handOver Node ", "awaitLabels Node ",
	}
	after := []string{
		"deleteAll NodeFeature nvidia/", "delete NodeFeatureRule nvidia-kernel-modules",
		"delete CustomResourceDefinition nodefeatures.nfd.k8s-sigs.io", "delete Role nvidia/nfd-worker",
		"delete ServiceAccount nvidia/nfd",
	}
	g.Expect(texts(c.HandOver(false))).To(Equal(append(before[:len(before):len(before)], after...)))
	g.Expect(c.HandOverNotes(false)).To(ConsistOf(HaveSuffix(
		": feature.node.kubernetes.io/cpu-model.family, nvidia.com/gds.capable")))
	g.Expect(texts(c.HandOver(true))).To(Equal(append(append(before, "removeLabels Node "), after...)))
	for _, s := range c.HandOver(true)[3:6] {
		g.Expect(s.Nodes).To(Equal([]string{"gpu-0"}), string(s.Action))
	}
	g.Expect(c.HandOverNotes(true)).To(BeEmpty())

	elsewhere := c.Objects[4].DeepCopy()
	elsewhere.SetNamespace("other")
	all := &Cluster{Objects: append(c.Objects[:len(c.Objects):len(c.Objects)], elsewhere)}
	g.Expect(texts(all.HandOver(false))).To(ContainElements(
		"deleteAll NodeFeature nvidia/", "deleteAll NodeFeature other/"))
	g.Expect((&Cluster{}).HandOverNotes(false)).To(BeEmpty())

	c.Objects[2].SetAnnotations(map[string]string{"argocd.argoproj.io/tracking-id": "x"})
	g.Expect(texts(c.HandOver(false))).NotTo(ContainElement(ContainSubstring("CustomResourceDefinition")))
	c.Objects[2].SetAnnotations(nil)
	c.Objects[2].SetLabels(map[string]string{"app": "of-others"})
	g.Expect(texts(c.HandOver(false))).NotTo(ContainElement(ContainSubstring("CustomResourceDefinition")))
	g.Expect(c.HandOverNotes(true)).To(ConsistOf(ContainSubstring("nodefeatures.nfd.k8s-sigs.io stays")))

	c.Objects = c.Objects[:3]
	g.Expect(c.HandOverNotes(true)).To(BeEmpty(), "nothing of NVIDIA's chart is left")
	g.Expect(c.HandOver(false)).To(BeEmpty(), "nothing of NVIDIA's chart is left")
	g.Expect(texts(c.HandOver(true))).To(Equal([]string{"removeLabels Node "}))
}

func TestHandOverRefusal(t *testing.T) {
	another := decoded(t, feature)
	another.SetName("of-another-operator")
	tests := map[string]struct {
		change func(*Cluster)
		want   string
	}{
		"its own installation": {
			func(c *Cluster) { c.Objects = append(c.Objects, decoded(t, worker)) }, "DaemonSet nvidia/worker runs",
		},
		"a rule of a user": {
			func(c *Cluster) { c.Objects = append(c.Objects, decoded(t, rule)) },
			"NodeFeatureRule nvidia-kernel-modules is for",
		},
		"features of another operator": {
			func(c *Cluster) { c.Objects = append(c.Objects, another) }, "NodeFeature nvidia/of-another-operator is for",
		},
		"GPU features in a NodeFeature": {
			func(c *Cluster) { c.Objects = append(c.Objects, decoded(t, features)) }, "remove USE_NODE_FEATURE_API",
		},
		"a rule with the name of a node": {
			func(c *Cluster) {
				named := decoded(t, strings.Replace(feature, "kind: NodeFeature", "kind: NodeFeatureRule", 1))
				c.Objects = append(c.Objects, named)
			}, "NodeFeatureRule nvidia/gpu-0 is for",
		},
		"node discovery that is not ready": {
			func(c *Cluster) {
				c.Objects[1] = decoded(t, strings.Replace(discoveryPod, `"True"`, `"False"`, 1))
			}, "on 1 of the nodes",
		},
		"another pod": {
			func(c *Cluster) { c.Objects[1].SetLabels(nil) }, "on 1 of the nodes",
		},
		"nothing of NVIDIA's chart": {
			func(c *Cluster) { c.Objects = append(c.Objects[:1:1], decoded(t, rule)) }, "",
		},
		"a node that is not ready": {
			func(c *Cluster) {
				down := decoded(t, strings.Replace(labelled, `status: "True"`, `status: "False"`, 1))
				c.Objects = append([]*unstructured.Unstructured{down}, c.Objects[2:]...)
			}, "",
		},
		"no node discovery": {
			func(c *Cluster) { c.Objects = append(c.Objects[:1:1], c.Objects[2:]...) }, "on 1 of the nodes",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := discovering(t)
			test.change(c)
			if test.want == "" {
				g.Expect(c.HandOverRefusal()).To(BeEmpty())
				return
			}
			g.Expect(c.HandOverRefusal()).To(ContainSubstring(test.want))
		})
	}
}

// A NodeFeature of NVIDIA's GPU Feature Discovery is deleted once nfd-worker reports its labels.
func TestStaleFeatures(t *testing.T) {
	g := NewWithT(t)
	owner := decoded(t, strings.ReplaceAll(features, "USE_NODE_FEATURE_API", "OTHER"))
	owner.SetUID("one")
	stale, reported := decoded(t, feature), decoded(t, feature)
	stale.SetName("nvidia-features-for-gpu-0")
	stale.SetOwnerReferences([]metav1.OwnerReference{{Kind: "Pod", UID: "gone"}, {Kind: "DaemonSet", UID: "one"}})
	g.Expect(unstructured.SetNestedField(stale.Object, "8", "spec", "labels", "nvidia.com/gpu.count")).To(Succeed())
	c := Cluster{Objects: []*unstructured.Unstructured{owner, stale, reported}}
	g.Expect(unstructured.SetNestedField(reported.Object, "4", "spec", "labels", "nvidia.com/gpu.count")).To(Succeed())
	g.Expect(c.Finish()).To(BeEmpty(), "this operator has not taken the DaemonSet over")
	owner.SetLabels(map[string]string{
		"app.kubernetes.io/managed-by": "gpu-operator", "nvidia.com/gpu-operator.operand": "gpu-feature-discovery",
	})
	owner.SetAnnotations(map[string]string{"nvidia.com/gpu-operator.digest": "one"})
	g.Expect(texts(c.Finish())).To(Equal([]string{"delete NodeFeature nvidia/nvidia-features-for-gpu-0"}))
	writes := decoded(t, features)
	writes.SetName("writes-features")
	c.Objects = append(c.Objects, writes)
	g.Expect(c.Finish()).To(BeEmpty(), "it is still written")
	c.Objects = c.Objects[:3]
	unstructured.RemoveNestedField(reported.Object, "spec", "labels")
	g.Expect(c.Finish()).To(BeEmpty(), "a label would be missing")
}
