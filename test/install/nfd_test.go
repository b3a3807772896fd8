package install

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/migration"
	"github.com/clusterpolicy/gpu-operator/test/nfd"
)

// nfdLists is the annotation in which Node Feature Discovery lists its labels, nfdVersion another annotation of
// it. Node discovery does not write nfdOfRule, a label of the rule, and nfdOfCPU.
const (
	nfdLists   = "nfd.node.kubernetes.io/feature-labels"
	nfdVersion = "nfd.node.kubernetes.io/master.version"
	nfdOfRule  = "nvidia.com/gds.capable"
	nfdOfCPU   = "feature.node.kubernetes.io/cpu-model.family"
)

var (
	nodeFeature     = schema.GroupVersionKind{Group: "nfd.k8s-sigs.io", Version: "v1alpha1", Kind: "NodeFeature"}
	nodeFeatureRule = schema.GroupVersionKind{Group: "nfd.k8s-sigs.io", Version: "v1alpha1", Kind: "NodeFeatureRule"}
)

// writeNFD writes the manifests of Node Feature Discovery and of its definitions into the folder of a chart, and
// returns their files. keep is the finalizer of its pods; none if empty.
func (e *env) writeNFD(chartFolder, keep string) (definitions, manifests string) {
	e.t.Helper()
	definitions = filepath.Join(chartFolder, "crds", "nfd.yaml")
	manifests = filepath.Join(chartFolder, "templates", "nfd.yaml")
	objects := nfd.Objects
	if keep != "" {
		objects = strings.ReplaceAll(objects, "    metadata: {", "    metadata: {finalizers: ["+keep+"], ")
	}
	for path, content := range map[string]string{definitions: nfd.Definitions(), manifests: objects} {
		e.Expect(os.MkdirAll(filepath.Dir(path), 0o700)).To(Succeed())
		e.Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
	}
	return definitions, manifests
}

// writeMarks writes labels and annotations on a node; nil removes one.
func (e *env) writeMarks(name string, labels, annotations map[string]any) {
	e.t.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels, "annotations": annotations}})
	e.Expect(err).NotTo(HaveOccurred())
	e.Expect(e.client.Patch(e.t.Context(), e.node(name), client.RawPatch(types.MergePatchType, patch))).To(Succeed())
}

// labelByNFD adds what Node Feature Discovery writes beside the labels of simulated nodes. typed adds the label of a
// rule, and one of a user on the first node: NVIDIA's operator sets it on the other.
func (e *env) labelByNFD(typed bool) {
	e.t.Helper()
	list := "cpu-model.family,kernel-version.full,pci-0302_10de.present,pci-10de.present,system-os_release.ID," +
		"system-os_release.VERSION_ID"
	labels := map[string]any{nfdOfCPU: "6"}
	names := e.nodeNames()
	if typed {
		labels[nfdOfRule], list = "true", list+","+nfdOfRule
		e.kubectl("label", "node", names[0], "nvidia.com/mig.config=all-disabled")
	}
	for _, name := range names {
		e.writeMarks(name, labels, map[string]any{nfdLists: list, nfdVersion: "v0.19.0"})
	}
}

// unlabel removes all that Node Feature Discovery has written, so that its programs write it. Nor does the simulator.
func (e *env) unlabel() {
	e.t.Helper()
	for _, name := range e.nodeNames() {
		node := e.node(name)
		annotations := maps.Clone(node.Annotations)
		maps.DeleteFunc(annotations, func(key, _ string) bool { return !strings.HasPrefix(key, "nfd.") })
		marks := removed(annotations)
		marks["simulator.gpu-operator/discovery"] = "never"
		e.writeMarks(name, removed(discovered(node)), marks)
	}
}

func removed(of map[string]string) map[string]any {
	all := map[string]any{}
	for key := range of {
		all[key] = nil
	}
	return all
}

func (e *env) nodeNames() []string {
	e.t.Helper()
	nodes := &corev1.NodeList{}
	e.Expect(e.client.List(e.t.Context(), nodes)).To(Succeed())
	var names []string
	for i := range nodes.Items {
		names = append(names, nodes.Items[i].Name)
	}
	return names
}

// playNFD creates what nfd-worker writes, and plays nfd-master: while it has a pod, it removes its labels from a node
// whose NodeFeature is gone, and that of the rule once the rule is gone. The function that it returns ends that.
func (e *env) playNFD() func() {
	e.t.Helper()
	names := e.nodeNames()
	for _, name := range names {
		e.Expect(e.client.Create(e.t.Context(), e.feature(name))).To(Succeed())
	}
	ctx, cancel := context.WithCancel(e.t.Context())
	var playing sync.WaitGroup
	playing.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-tick.C:
				e.masterRound(ctx, names)
			}
		}
	})
	end := sync.OnceFunc(func() { cancel(); playing.Wait() })
	e.t.Cleanup(end)
	return end
}

// feature returns the NodeFeature of nfd-worker for a node.
func (e *env) feature(node string) *unstructured.Unstructured {
	feature := &unstructured.Unstructured{}
	feature.SetGroupVersionKind(nodeFeature)
	feature.SetNamespace(namespace)
	feature.SetName(node)
	feature.SetLabels(map[string]string{"nfd.node.kubernetes.io/node-name": node})
	return feature
}

// masterRound is one round of nfd-master. Its errors are those of a cluster that changes, and the next round is soon.
func (e *env) masterRound(ctx context.Context, nodes []string) {
	pods := &corev1.PodList{}
	err := e.client.List(ctx, pods, client.InNamespace(namespace), client.MatchingLabels{"app": "nfd-master"})
	if err != nil || len(pods.Items) == 0 {
		return
	}
	rules, features := &unstructured.UnstructuredList{}, &unstructured.UnstructuredList{}
	rules.SetGroupVersionKind(nodeFeatureRule)
	features.SetGroupVersionKind(nodeFeature)
	for _, list := range []client.ObjectList{rules, features} {
		if client.IgnoreNotFound(e.client.List(ctx, list)) != nil {
			return
		}
	}
	for _, name := range nodes {
		node := &corev1.Node{}
		if e.client.Get(ctx, client.ObjectKey{Name: name}, node) != nil {
			return
		}
		lost := lostLabels(node, len(rules.Items) > 0, features.Items)
		if len(lost) == 0 {
			continue
		}
		e.t.Logf("nfd-master removes labels of node %s: %v", name, lost)
		patch, _ := json.Marshal(map[string]any{"metadata": map[string]any{"labels": removed(lost)}})
		_ = e.client.Patch(ctx, node, client.RawPatch(types.MergePatchType, patch))
	}
}

// lostLabels returns the labels that nfd-master removes from a node.
func lostLabels(node *corev1.Node, hasRule bool, features []unstructured.Unstructured) map[string]string {
	ofNode := slices.ContainsFunc(features, func(f unstructured.Unstructured) bool { return f.GetName() == node.Name })
	lost := discovered(node)
	maps.DeleteFunc(lost, func(key, _ string) bool {
		if key == nfdOfRule {
			return hasRule
		}
		return ofNode
	})
	return lost
}

// handsOver replaces Node Feature Discovery by node discovery, while no pod but those of the former ends. Of the former
// nothing is left but the labels that the latter does not write, with their values, and their list.
func (e *env) handsOver() {
	e.t.Helper()
	pods := migration.NewWatcher(e.t, e.cluster.Config)
	before := map[string]*corev1.Node{}
	for _, name := range e.nodeNames() {
		before[name] = e.node(name)
		listed := listedByNFD(before[name])
		e.Expect(listed).To(ContainElements(nfdOfCPU, nfdOfRule, discoveryPrefix+"pci-10de.present"))
		for _, key := range ownLabels(before[name]) {
			e.Expect(listed).NotTo(ContainElement(key), "node discovery leaves the labels of the other to it")
		}
	}
	out := e.migrates("--finish", "--node-discovery", "--yes")
	e.Expect(out).To(And(ContainSubstring("wait until node-discovery has taken over the labels of 2 nodes"),
		MatchRegexp("These labels stay on the nodes .*: .*"+nfdOfCPU+", .*"+nfdOfRule)))
	e.Expect(e.migrates("--finish", "--node-discovery", "--yes")).To(HaveSuffix("Nothing is left to do.\n"))
	e.Expect(pods.Err()).NotTo(HaveOccurred())
	for app := range pods.Apps() {
		if !strings.HasPrefix(app, "nfd-") {
			e.Expect(pods.EndedOn(app)).To(BeEmpty(), app)
		}
	}
	for _, name := range e.nodeNames() {
		node := e.node(name)
		own := ownLabels(node)
		e.Expect(own).To(ContainElements(
			discoveryPrefix+"pci-10de.present", discoveryPrefix+"kernel-version.full", discoveryPrefix+"system-os_release.ID"))
		left := slices.DeleteFunc(listedByNFD(before[name]), func(key string) bool { return slices.Contains(own, key) })
		e.Expect(listedByNFD(node)).To(ConsistOf(left))
		for key := range node.Annotations {
			e.Expect(strings.HasPrefix(key, "nfd.") && key != nfdLists).To(BeFalse(), key)
		}
	}
	objects, err := cluster.Objects(e.t.Context(), e.cluster.Config)
	e.Expect(err).NotTo(HaveOccurred())
	for _, object := range objects {
		isNFDs := object.GetLabels()["app.kubernetes.io/name"] == "node-feature-discovery" ||
			object.GroupVersionKind().Group == nodeFeature.Group || strings.HasSuffix(object.GetName(), "."+nodeFeature.Group)
		e.Expect(isNFDs).To(BeFalse(), "%s %s is left", object.GetKind(), object.GetName())
	}
}

// ownLabels returns the keys of the labels that node discovery has written on a node.
func ownLabels(node *corev1.Node) []string {
	return strings.FieldsFunc(node.Annotations["nvidia.com/gpu-operator.discovered-labels"],
		func(r rune) bool { return r == ',' })
}

// listedByNFD returns the keys of the labels that Node Feature Discovery lists on a node.
func listedByNFD(node *corev1.Node) []string {
	keys := strings.Split(node.Annotations[nfdLists], ",")
	for i, key := range keys {
		if !strings.Contains(key, "/") {
			keys[i] = discoveryPrefix + key
		}
	}
	return keys
}

// forgetsLabels removes the labels that node discovery does not write.
func (e *env) forgetsLabels() {
	e.t.Helper()
	e.migrates("--finish", "--node-discovery", "--remove-labels", "--yes")
	for _, name := range e.nodeNames() {
		node := e.node(name)
		e.Expect(node.Labels).To(And(Not(HaveKey(nfdOfCPU)), Not(HaveKey(nfdOfRule)),
			HaveKey(discoveryPrefix+"pci-10de.present")))
		e.Expect(node.Annotations).NotTo(HaveKey(nfdLists))
	}
}
