package preview

import (
	"cmp"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/assess"
	"github.com/clusterpolicy/gpu-operator/internal/effective"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/observe"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/plan"
	"github.com/clusterpolicy/gpu-operator/internal/readiness"
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

// node returns one node. A record that cannot be read is reported by the planner.
func (o *observer) node(object *corev1.Node, nodePlan plan.NodePlan) planned {
	node := upgrade.Node{
		Name: object.Name, UID: object.UID, Group: groupOf(o.plan.Input.Spec, nodePlan.NodePool),
		State:             upgrade.State(object.Labels[labels.UpgradeState]),
		InitiallyCordoned: object.Annotations[labels.UpgradeInitialCordon] == labels.True,
		Requested:         object.Annotations[labels.UpgradeRequested] == labels.True,
		Skip:              object.Labels[labels.UpgradeSkip] == labels.True,
		Unschedulable:     object.Spec.Unschedulable,
		KubeletReady:      readiness.Kubelet(object).State == readiness.Ready,
		GPUReady:          isGPUReady(object),
		BootID:            object.Status.NodeInfo.BootID,
	}
	if text, recorded := object.Annotations[labels.UpgradeRecord]; recorded {
		record, err := upgrade.DecodeRecord(text)
		if node.Record = record; err != nil {
			node.Unreadable = err.Error()
		}
	}
	driver, applies := o.plan.Driver(&nodePlan)
	if !applies {
		return planned{node, nodePlan.Spec}
	}
	if pod := o.operands[object.Name][driver.Operand]; pod != nil {
		node.Driver = new(observe.UpgradePod(pod, o.now))
	}
	switch driver.Expectation {
	case plan.Expected, plan.PausedByLabel:
		node.Installs = true
	case plan.Refused:
		node.Installs = node.Driver != nil || node.Record != nil && node.Record.State.InProgress()
	case plan.HostProvides, plan.OptedOut:
	}
	labelled, wanted := cmp.Or(object.Labels[labels.Pool], object.Labels[labels.DriverAnchor]), nodePlan.Pool.Name
	if driver.Expectation != plan.Refused && labelled != "" && wanted != "" && wanted != labelled {
		node.MoveTo = wanted
	}
	if ds := o.daemonSet(driver.Operand, object, cmp.Or(node.MoveTo, labelled, wanted)); ds != nil {
		node.Target = ds.Annotations[labels.TemplateDigest]
	}
	return planned{node, nodePlan.Spec}
}

// daemonSet returns the DaemonSet of a driver pool; if there is none, the one that selects the node.
func (o *observer) daemonSet(driver operand.Name, node *corev1.Node, pool string) *appsv1.DaemonSet {
	var selecting *appsv1.DaemonSet
	for _, ds := range o.daemonSets {
		if ds.Labels[labels.Operand] != string(driver) || ds.DeletionTimestamp != nil {
			continue
		}
		switch of := ds.Spec.Template.Labels[labels.Pool]; {
		case of != "" && of == pool:
			return ds
		case of == "" && readiness.Selects(ds, node):
			selecting = ds
		}
	}
	return selecting
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

// groupOf returns the group of the nodes of a node pool: that of the node pool if it has an upgradePolicy of its own,
// else the common one, which is empty.
func groupOf(spec effective.Spec, nodePool string) string {
	has := slices.ContainsFunc(spec.NodePools, func(pool v1.NodePoolSpec) bool {
		return pool.Name == nodePool && pool.Driver != nil && pool.Driver.UpgradePolicy != nil
	})
	if has {
		return nodePool
	}
	return ""
}
