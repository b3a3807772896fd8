package preview

import (
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/assess"
	"github.com/clusterpolicy/gpu-operator/internal/effective"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/observe"
	"github.com/clusterpolicy/gpu-operator/internal/plan"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// observer makes the planner's nodes from the objects of the cluster.
type observer struct {
	cluster *Cluster
	plan    plan.Plan
	// daemonSets as they are after the edit, by name.
	daemonSets map[string]*appsv1.DaemonSet
	// pods of the stack by node, and the pods of all namespaces by node.
	operands map[string]assess.Pods
	all      map[string][]corev1.Pod
	now      time.Time
}

// observe sorts the pods by node.
func (o *observer) observe() {
	o.operands, o.all = map[string]assess.Pods{}, map[string][]corev1.Pod{}
	for _, pod := range of[*corev1.Pod](o.cluster) {
		node := observe.PodNode(pod)
		o.all[node] = append(o.all[node], *pod)
		if pod.Namespace != o.cluster.Namespace || pod.Labels[labels.Operand] == "" {
			continue
		}
		if o.operands[node] == nil {
			o.operands[node] = assess.Pods{}
		}
		o.operands[node].Add(pod)
	}
}

// planned is a node with the spec that applies to it.
type planned struct {
	upgrade.Node
	spec effective.Spec
}

// nodes returns the GPU nodes that the operator manages, sorted by name.
func (o *observer) nodes() []planned {
	var found []planned
	for _, node := range of[*corev1.Node](o.cluster) {
		if facts := observe.Facts(node); facts.Managed() {
			found = append(found, o.node(node, o.plan.ForNode(facts)))
		}
	}
	slices.SortFunc(found, func(a, b planned) int { return strings.Compare(a.Name, b.Name) })
	return found
}

// node returns one node.
func (o *observer) node(object *corev1.Node, nodePlan plan.NodePlan) planned {
	node, _ := observe.UpgradeNode(&observe.UpgradeFacts{
		Node: object, Decisions: o.plan.Decisions, Planned: &nodePlan, DaemonSets: o.daemonSets,
		Pods: observe.NodePods{Operands: o.operands[object.Name]}, GPUReady: isGPUReady(object), Now: o.now,
	})
	return planned{node, nodePlan.Spec}
}

// isGPUReady reports whether the GPUs of a node can be used.
func isGPUReady(node *corev1.Node) bool {
	for i := range node.Status.Conditions {
		if condition := &node.Status.Conditions[i]; condition.Type == labels.ConditionGPUReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}
