package preview

import (
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// observer makes the planner's nodes from the objects of the cluster.
type observer struct {
	cluster *Cluster
	plan    plan.Plan
	// daemonSets as they are after the edit, by name.
	daemonSets map[string]*appsv1.DaemonSet
	pods       nodePods
	// labelled are the nodes of the cluster, as the node controller labels them.
	labelled []*corev1.Node
	now      time.Time
}

// nodePods are the pods of the stack by node, and the pods of all namespaces by node.
type nodePods struct {
	operands map[string]assess.Pods
	all      map[string][]corev1.Pod
}

// podsByNode sorts the pods by node.
func podsByNode(c *Cluster) nodePods {
	found := nodePods{operands: map[string]assess.Pods{}, all: map[string][]corev1.Pod{}}
	for _, pod := range of[*corev1.Pod](c) {
		node := observe.PodNode(pod)
		found.all[node] = append(found.all[node], *pod)
		if pod.Namespace != c.Namespace || pod.Labels[labels.Operand] == "" {
			continue
		}
		if found.operands[node] == nil {
			found.operands[node] = assess.Pods{}
		}
		found.operands[node].Add(pod)
	}
	return found
}

// planned is a node with the spec that applies to it.
type planned struct {
	upgrade.Node
	spec effective.Spec
	// policyField is the path of its upgradePolicy.
	policyField string
}

// nodes returns the GPU nodes that the operator manages, sorted by name.
func (o *observer) nodes() []planned {
	var found []planned
	for _, node := range o.labelled {
		if facts := observe.Facts(node); facts.Managed() {
			found = append(found, o.node(node, o.plan.ForNode(facts)))
		}
	}
	slices.SortFunc(found, func(a, b planned) int { return strings.Compare(a.Name, b.Name) })
	return found
}

// node returns one node.
func (o *observer) node(object *corev1.Node, nodePlan plan.NodePlan) planned {
	ready := assess.GPUReadyCondition(object)
	node, _ := observe.UpgradeNode(&observe.UpgradeFacts{
		Node: object, Decisions: o.plan.Decisions, Planned: &nodePlan, DaemonSets: o.daemonSets,
		Pods: observe.NodePods{Operands: o.pods.operands[object.Name]}, Now: o.now,
		GPUReady: ready != nil && ready.Status == corev1.ConditionTrue,
	})
	return planned{node, nodePlan.Spec, observe.UpgradePolicyField(o.plan.Input.Spec, &nodePlan)}
}
