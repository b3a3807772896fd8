package preview

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/node/nodemarks"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

// settleRounds is how often the labels of a node may follow from those that were written before: the labels of a driver
// pool follow from those of a node pool or of an NVIDIADriver object.
const settleRounds = 3

// Unwritten returns a copy of a node without what an operator has written on it, as it is before a first installation.
// What users and discoveries have written stays, and so does nvidia.com/gpu.present, which both may have written.
func Unwritten(catalogue operand.Catalogue, node *corev1.Node) *corev1.Node {
	node = node.DeepCopy()
	changes := nodemarks.Released(catalogue, node, cmp.Or(node.Labels[labels.GPUPresent], labels.True))
	change(node.Labels, changes.Labels)
	change(node.Annotations, changes.Annotations)
	return node
}

// Keeps reports whether labels that an operator has written on a node make it decide otherwise than without them, in a
// cluster without pods of the stack: such as an operand that the node keeps although no nodeSelector selects it.
func Keeps(d *plan.Decisions, node *corev1.Node) bool {
	return !maps.Equal(placement(Settled(d, Unwritten(d.Catalogue, node))), placement(Settled(d, node)))
}

// Settled returns a copy of a node with the labels that the node controller gives it while no pod of the stack is ready
// there.
func Settled(d *plan.Decisions, node *corev1.Node) *corev1.Node {
	return settled(d, node, plan.ReadyPods{})
}

// placement returns the labels by which only the operator's own objects select a node.
func placement(node *corev1.Node) map[string]string {
	found := maps.Clone(node.Labels)
	maps.DeleteFunc(found, func(key, _ string) bool { return !labels.IsOwn(key) })
	return found
}

// settled returns a copy of a node with the labels that the node controller gives it, as long as the same pods of the
// stack are ready there. It requests no MIG layout, which changes no object.
func settled(d *plan.Decisions, node *corev1.Node, ready plan.ReadyPods) *corev1.Node {
	node = node.DeepCopy()
	for range settleRounds {
		facts := observe.Facts(node)
		if !facts.Managed() {
			break
		}
		changes := d.NodeLabels(facts, node.Labels, ready)
		delete(changes, labels.MIGConfig)
		change(node.Labels, changes)
	}
	return node
}

// change sets and removes keys; nil removes one.
func change(current map[string]string, changes map[string]*string) {
	for key, value := range changes {
		if value == nil {
			delete(current, key)
			continue
		}
		current[key] = *value
	}
}

// settledNodes returns the nodes of the cluster as the node controller labels them, sorted by name: now, as long as
// drivers run, and as soon as driver upgrades have moved the nodes to other driver pools.
func (c *Cluster) settledNodes(d *plan.Decisions, now time.Time) (current, moved []*corev1.Node) {
	pods := podsByNode(c)
	for _, node := range of[*corev1.Node](c) {
		ready := readyPods(d.Catalogue, pods.operands[node.Name], now)
		labelled := settled(d, node, ready)
		current = append(current, labelled)
		ready.Driver, ready.CurrentDriver = false, false
		moved = append(moved, settled(d, labelled, ready))
	}
	byName := func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) }
	slices.SortFunc(current, byName)
	slices.SortFunc(moved, byName)
	return current, moved
}

// readyPods reports which of the driver and the injector have a ready pod among the pods of a node.
func readyPods(catalogue operand.Catalogue, pods map[operand.Name]*corev1.Pod, now time.Time) plan.ReadyPods {
	found := plan.ReadyPods{}
	for i := range catalogue {
		o := &catalogue[i]
		if pod := pods[o.Name]; pod != nil && readiness.Pod(pod, "", now).State == readiness.Ready {
			found.Driver = found.Driver || o.UpdatesOnDelete
			found.Injector = found.Injector || o.IsInjector
		}
	}
	return found
}

// factsOf returns the facts of nodes, in their order.
func factsOf(nodes []*corev1.Node) []nodeinfo.Facts {
	facts := make([]nodeinfo.Facts, 0, len(nodes))
	for _, node := range nodes {
		facts = append(facts, observe.Facts(node))
	}
	return facts
}
