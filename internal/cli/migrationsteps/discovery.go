package migrationsteps

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/removal/cleanup"
)

// What Node Feature Discovery has beside the objects of its chart.
const (
	nfdGroup        = "nfd.k8s-sigs.io"
	kindNodeFeature = "NodeFeature"
	kindDefinition  = "CustomResourceDefinition"
	// nfdNodeName is the label of a NodeFeature with the name of its node, which is its own name, too.
	nfdNodeName = labels.NFDPrefix + "node-name"
	// nfdFeatures precedes the node's name in that of a NodeFeature of GPU Feature Discovery.
	nfdFeatures = "nvidia-features-for-"
	// NFDLease is the name of the lease of nfd-master.
	NFDLease = "nfd-master.nfd.kubernetes.io"
	// DiscoveryOperand and featuresOperand are the operands that label nodes.
	DiscoveryOperand = "node-discovery"
	featuresOperand  = "gpu-feature-discovery"
)

// NFDDefinitions returns the names of the CustomResourceDefinitions of Node Feature Discovery.
func NFDDefinitions() []string {
	return []string{"nodefeatures." + nfdGroup, "nodefeaturerules." + nfdGroup, "nodefeaturegroups." + nfdGroup}
}

// keptDiscovery returns the objects of Node Feature Discovery that NVIDIA's chart has installed and kubectl gpu migrate
// has kept. Those of an installation of its own are not annotated.
func (c *Cluster) keptDiscovery() []*unstructured.Unstructured {
	return slices.DeleteFunc(c.sorted(), func(object *unstructured.Unstructured) bool {
		return !isDiscovery(object) || releaseOf(object) == (Release{}) || object.GetAnnotations()[ResourcePolicy] != Keep
	})
}

// otherDiscovery returns what runs a Node Feature Discovery that NVIDIA's chart has not installed.
func (c *Cluster) otherDiscovery() []*unstructured.Unstructured {
	kept := c.keptDiscovery()
	return slices.DeleteFunc(slices.Concat(c.ofKind(kindDeployment), c.ofKind(kindDaemonSet)),
		func(object *unstructured.Unstructured) bool {
			return slices.Contains(kept, object) || !slices.ContainsFunc(containersOf(object),
				func(container map[string]any) bool {
					image, _ := container["image"].(string)
					return strings.Contains(baseName(image), discoveryName)
				})
		})
}

// containersOf returns the containers of a Deployment or a DaemonSet.
func containersOf(object *unstructured.Unstructured) []map[string]any {
	var found []map[string]any
	containers, _, _ := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
	for _, entry := range containers {
		if fields, isMap := entry.(map[string]any); isMap {
			found = append(found, fields)
		}
	}
	return found
}

// otherFeatures returns the objects for which other users need Node Feature Discovery: all of its kinds but those of
// NVIDIA's chart, of nfd-worker and of GPU Feature Discovery.
func (c *Cluster) otherFeatures() []*unstructured.Unstructured {
	kept := c.keptDiscovery()
	return slices.DeleteFunc(c.sorted(), func(object *unstructured.Unstructured) bool {
		node := object.GetLabels()[nfdNodeName]
		ofNode := object.GetKind() == kindNodeFeature && node != "" &&
			(object.GetName() == node || object.GetName() == nfdFeatures+node)
		return object.GroupVersionKind().Group != nfdGroup || slices.Contains(kept, object) || ofNode
	})
}

// unserved returns the nodes that Node Feature Discovery labels and node discovery would not: no ready pod of it is
// there, although the node is ready.
func (c *Cluster) unserved() []string {
	served := map[string]bool{}
	for _, pod := range c.ofKind("Pod") {
		node, _, _ := unstructured.NestedString(pod.Object, "spec", "nodeName")
		served[node] = served[node] || pod.GetLabels()[labels.Operand] == DiscoveryOperand && isReady(pod)
	}
	var nodes []string
	for _, node := range c.ofKind(kindNode) {
		if len(labels.ListedByNFD(node.GetAnnotations())) > 0 && isReady(node) && !served[node.GetName()] {
			nodes = append(nodes, node.GetName())
		}
	}
	return nodes
}

// needsFeatures reports whether GPU Feature Discovery writes NodeFeature objects instead of the file that node
// discovery reads.
func (c *Cluster) needsFeatures() bool {
	return slices.ContainsFunc(c.ofKind(kindDaemonSet), func(object *unstructured.Unstructured) bool {
		return object.GetLabels()[labels.Operand] == featuresOperand && slices.ContainsFunc(containersOf(object),
			func(container map[string]any) bool {
				variables, _ := container["env"].([]any)
				return slices.ContainsFunc(variables, func(variable any) bool {
					fields, _ := variable.(map[string]any)
					return fields["name"] == "USE_NODE_FEATURE_API" && fields["value"] == labels.True
				})
			})
	})
}

// staleFeatures returns the NodeFeature objects of NVIDIA's GPU Feature Discovery. This operator's writes a file
// instead, so that nobody writes them any more, and nfd-master prefers them to what nfd-worker reads from that file. An
// object is left out until nfd-worker reports all of its labels: none is missing then.
func (c *Cluster) staleFeatures() []*unstructured.Unstructured {
	if c.needsFeatures() {
		return nil
	}
	owners, reported := map[types.UID]bool{}, map[string]map[string]string{}
	for _, object := range c.ofKind(kindDaemonSet) {
		owners[object.GetUID()] = labels.IsApplied(object) && object.GetLabels()[labels.Operand] == featuresOperand
	}
	for _, object := range c.ofKind(kindNodeFeature) {
		reported[object.GetName()], _, _ = unstructured.NestedStringMap(object.Object, "spec", "labels")
	}
	return slices.DeleteFunc(c.ofKind(kindNodeFeature), func(object *unstructured.Unstructured) bool {
		node := object.GetLabels()[nfdNodeName]
		isOwner := func(owner metav1.OwnerReference) bool { return owners[owner.UID] }
		if object.GetName() != nfdFeatures+node || !slices.ContainsFunc(object.GetOwnerReferences(), isOwner) {
			return true
		}
		for key := range reported[object.GetName()] {
			if _, there := reported[node][key]; !there {
				return true
			}
		}
		return false
	})
}

// HandOverRefusal returns why Node Feature Discovery of NVIDIA's chart cannot be replaced; empty if it can, or is not
// there.
func (c *Cluster) HandOverRefusal() string {
	if others := c.otherDiscovery(); len(others) > 0 {
		return cleanup.Describe(others[0]).String() + " runs a Node Feature Discovery that kubectl gpu migrate has not " +
			"found in NVIDIA's chart, and the labels of two cannot be distinguished: leave out --node-discovery"
	}
	if len(c.keptDiscovery()) == 0 {
		return ""
	}
	if others := c.otherFeatures(); len(others) > 0 {
		return cleanup.Describe(others[0]).String() + " is for Node Feature Discovery, which would read it no more: " +
			"delete it, or leave out --node-discovery"
	}
	if c.needsFeatures() {
		return "GPU Feature Discovery writes its labels to NodeFeature objects: remove USE_NODE_FEATURE_API from " +
			"spec.gfd.env first"
	}
	if nodes := c.unserved(); len(nodes) > 0 {
		return fmt.Sprintf("no ready pod of node-discovery is on %d of the nodes that Node Feature Discovery labels, such "+
			"as %s: see spec.nodeDiscovery, or leave out --node-discovery", len(nodes), nodes[0])
	}
	return ""
}

// HandOver returns the steps that replace Node Feature Discovery of NVIDIA's chart by node discovery, in order: what
// labels nodes is stopped first, so that no label is removed, and node discovery takes over those that it writes too,
// before anything else is deleted. The other labels stay, unless they are to be removed.
func (c *Cluster) HandOver(removeLabels bool) []Step {
	kept := c.keptDiscovery()
	var steps, last []Step
	for _, kind := range []string{kindDeployment, kindDaemonSet} {
		for _, object := range kept {
			if object.GetKind() == kind {
				steps = append(steps, discoveryWorkload(object)...)
			}
		}
	}
	if len(kept) > 0 {
		steps = append(steps, nodeStep(ActionHandOver, c.nodesThat(func(node *unstructured.Unstructured) bool {
			return HandOver(node) != nil
		}))...)
		steps = append(steps, nodeStep(ActionAwaitLabels, c.nodesThat(func(node *unstructured.Unstructured) bool {
			return !IsTakenOver(node)
		}))...)
		last = c.deleteDiscovery(kept)
	}
	if removeLabels {
		steps = append(steps, nodeStep(ActionRemoveLabels, c.nodesThat(func(node *unstructured.Unstructured) bool {
			return len(unknownLabels(node)) > 0
		}))...)
	}
	return append(steps, last...)
}

// discoveryWorkload returns the steps that remove a Deployment, once its pods have ended, or a DaemonSet.
func discoveryWorkload(object *unstructured.Unstructured) []Step {
	if object.GetKind() == kindDeployment {
		return stopSteps(object)
	}
	return []Step{step(ActionDelete, object)}
}

// deleteDiscovery returns the steps that delete all that is not on nodes, those objects last by which a repeated
// command knows that it is not done.
func (c *Cluster) deleteDiscovery(kept []*unstructured.Unstructured) []Step {
	var steps []Step
	for _, object := range c.ofKind(kindNodeFeature) {
		all := step(ActionDeleteAll, object)
		all.Name, all.ResourceVersion = "", ""
		if !slices.ContainsFunc(steps, func(s Step) bool { return s.Namespace == all.Namespace }) {
			steps = append(steps, all)
		}
	}
	var rules, others []*unstructured.Unstructured
	for _, object := range kept {
		switch kind := object.GetKind(); {
		case kind == kindDeployment || kind == kindDaemonSet:
		case object.GroupVersionKind().Group == nfdGroup:
			rules = append(rules, object)
		default:
			others = append(others, object)
		}
	}
	definitions := slices.DeleteFunc(c.nfdDefinitions(), isAnothers)
	for _, object := range slices.Concat(c.ofKind("Lease"), rules, definitions, others) {
		steps = append(steps, step(ActionDelete, object))
	}
	return steps
}

// nfdDefinitions returns the CustomResourceDefinitions of Node Feature Discovery.
func (c *Cluster) nfdDefinitions() []*unstructured.Unstructured {
	return slices.DeleteFunc(c.ofKind(kindDefinition), func(definition *unstructured.Unstructured) bool {
		return !slices.Contains(NFDDefinitions(), definition.GetName())
	})
}

// isAnothers reports whether a CustomResourceDefinition of Node Feature Discovery is another installer's: Helm creates
// it from the chart as it is, and other installers mark what they create.
func isAnothers(definition *unstructured.Unstructured) bool {
	for key := range definition.GetAnnotations() {
		if key != "controller-gen.kubebuilder.io/version" && key != "api-approved.kubernetes.io" {
			return true
		}
	}
	return len(definition.GetLabels()) > 0
}

// HandOverNotes returns what stays of Node Feature Discovery, a sentence for each.
func (c *Cluster) HandOverNotes(removeLabels bool) []string {
	var notes []string
	for _, definition := range c.nfdDefinitions() {
		if len(c.keptDiscovery()) > 0 && isAnothers(definition) {
			notes = append(notes, cleanup.Describe(definition).String()+" stays: another installer has marked it")
		}
	}
	unknown := map[string]bool{}
	for _, node := range c.ofKind(kindNode) {
		for _, key := range unknownLabels(node) {
			unknown[key] = true
		}
	}
	if len(unknown) > 0 && !removeLabels {
		notes = append(notes, "These labels stay on the nodes with their present values, as node discovery does not write "+
			"them; --remove-labels removes them: "+strings.Join(slices.Sorted(maps.Keys(unknown)), ", "))
	}
	return notes
}

// nodesThat returns the names of the nodes of which a condition is true.
func (c *Cluster) nodesThat(condition func(*unstructured.Unstructured) bool) []string {
	var names []string
	for _, node := range c.ofKind(kindNode) {
		if condition(node) {
			names = append(names, node.GetName())
		}
	}
	return names
}
