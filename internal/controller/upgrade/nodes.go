package upgrade

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/assess"
	"github.com/clusterpolicy/gpu-operator/internal/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/freshness"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/observe"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/plan"
	"github.com/clusterpolicy/gpu-operator/internal/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// nodePods are the pods of the operator on one node.
type nodePods struct {
	operands assess.Pods
	pull     *corev1.Pod
}

// observeNodes adds the nodes to the cluster: those that the operator manages, and those that still have the state of an
// upgrade.
func (s *scope) observeNodes(ctx context.Context) error {
	nodes := &corev1.NodeList{}
	if err := s.Client.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	pods, err := s.readPods(ctx)
	if err != nil {
		return err
	}
	entries := make(map[string]*fleet.Entry, len(s.view.Nodes))
	for _, entry := range s.view.Nodes {
		entries[entry.Facts.Name] = entry
	}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		if entry := entries[node.Name]; entry != nil || hasUpgrade(node) {
			s.addNode(node, entry, pods[node.Name])
		}
	}
	slices.SortFunc(s.cluster.Nodes, func(a, b upgrade.Node) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// hasUpgrade reports whether a node has the state of an upgrade.
func hasUpgrade(node *corev1.Node) bool {
	_, recorded := node.Annotations[labels.UpgradeRecord]
	return recorded || node.Labels[labels.UpgradeState] != ""
}

// readPods reads the pods of drivers and of the validator, and those that pull images, by node.
func (s *scope) readPods(ctx context.Context) (map[string]nodePods, error) {
	var names []string
	for i := range s.Catalogue {
		if name := string(s.Catalogue[i].Name); s.isDriver(name) || s.isValidator(name) {
			names = append(names, name)
		}
	}
	ofOperands, err := k8slabels.NewRequirement(labels.Operand, selection.In, names)
	if err != nil {
		return nil, fmt.Errorf("selecting the pods of drivers: %w", err)
	}
	found := map[string]nodePods{}
	for _, selector := range []k8slabels.Selector{
		k8slabels.NewSelector().Add(*ofOperands), k8slabels.SelectorFromSet(k8slabels.Set{labels.DriverPull: labels.True}),
	} {
		list := &corev1.PodList{}
		if err := s.Client.List(ctx, list, client.InNamespace(s.Namespace),
			client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing the pods of drivers: %w", err)
		}
		for i := range list.Items {
			addPod(found, &list.Items[i])
		}
	}
	return found, nil
}

func addPod(found map[string]nodePods, pod *corev1.Pod) {
	name := observe.PodNode(pod)
	on := found[name]
	if on.operands == nil {
		on.operands = assess.Pods{}
	}
	if pod.Labels[labels.DriverPull] != "" {
		on.pull = pod
	}
	on.operands.Add(pod)
	found[name] = on
}

// addNode adds a node to the cluster. entry is nil for one that the operator does not manage.
func (s *scope) addNode(object *corev1.Node, entry *fleet.Entry, pods nodePods) {
	node := upgrade.Node{
		Name: object.Name, UID: object.UID, State: upgrade.State(object.Labels[labels.UpgradeState]),
		InitiallyCordoned: object.Annotations[labels.UpgradeInitialCordon] == labels.True,
		Requested:         object.Annotations[labels.UpgradeRequested] == labels.True,
		Skip:              object.Labels[labels.UpgradeSkip] == labels.True,
		Unschedulable:     object.Spec.Unschedulable,
		KubeletReady:      readiness.Kubelet(object).State == readiness.Ready,
		BootID:            object.Status.NodeInfo.BootID,
		Pull:              s.podOf(pods.pull),
	}
	if text, recorded := object.Annotations[labels.UpgradeRecord]; recorded {
		record, err := upgrade.DecodeRecord(text)
		if node.Record = record; err != nil {
			node.Unreadable = err.Error()
		}
	}
	of := &observed{node: object, hold: s.mustHold(object, entry)}
	s.observed[object.Name] = of
	if entry != nil && entry.Planned != nil && s.basis.Decisions != nil {
		s.addPlanned(&node, of, entry, pods.operands)
	}
	s.cluster.Nodes = append(s.cluster.Nodes, node)
}

// mustHold reports whether no step may be carried out for a node now: it is not assessed by the current Basis, or the
// cache does not show the last write to it, or a call for it has just failed.
func (s *scope) mustHold(object *corev1.Node, entry *fleet.Entry) bool {
	if entry != nil && s.basis.Decisions != nil && entry.BasisVersion != s.basis.Version {
		return true
	}
	if freshness.Stale(object.ResourceVersion, s.memory.versions[object.Name]) {
		s.requeueAfter(s.Timing.RetryStale)
		return true
	}
	delete(s.memory.versions, object.Name)
	if left := s.memory.remaining(object.Name, s.now); left > 0 {
		s.requeueAfter(left)
		return true
	}
	return false
}

// addPlanned adds what follows from the plan for the node.
func (s *scope) addPlanned(node *upgrade.Node, of *observed, entry *fleet.Entry, pods assess.Pods) {
	decisions, planned := s.basis.Decisions, &entry.Planned.NodePlan
	node.Group = s.groupOf(planned.NodePool)
	node.GPUReady = entry.BasisVersion != 0 && entry.Latest.Usable
	for name, pod := range pods {
		switch {
		case s.isDriver(string(name)):
			node.Driver = s.podOf(pod)
		case s.isValidator(string(name)):
			node.Validator = s.podOf(pod)
		}
	}
	node.ValidatorWanted = s.expectsValidator(planned)
	driver, applies := decisions.Driver(planned)
	if !applies || entry.Facts.ExcludedByLabel {
		return
	}
	switch driver.Expectation {
	case plan.Expected, plan.PausedByLabel:
		node.Installs = true
	case plan.Refused:
		// What is installed stays, and its upgrade does not end because of an error in the spec.
		node.Installs = node.Driver != nil || node.Record != nil && node.Record.State.InProgress()
	case plan.HostProvides, plan.OptedOut:
	}
	labelled := cmp.Or(of.node.Labels[labels.Pool], of.node.Labels[labels.DriverAnchor])
	wanted := planned.Pool.Name
	if driver.Expectation != plan.Refused && labelled != "" && wanted != "" && wanted != labelled {
		node.MoveTo = wanted
	}
	of.daemonSet = s.driverDaemonSet(driver.Operand, of.node, cmp.Or(node.MoveTo, labelled, wanted))
	if of.daemonSet != nil {
		node.Target = of.daemonSet.Annotations[labels.TemplateDigest]
	}
}

// driverDaemonSet returns the DaemonSet of a driver pool; if there is none, the one that selects the node. It returns nil
// if there is neither.
func (s *scope) driverDaemonSet(driver operand.Name, node *corev1.Node, pool string) *appsv1.DaemonSet {
	var selecting *appsv1.DaemonSet
	for _, ds := range s.basis.Stack.DaemonSets {
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

// expectsValidator reports whether the validator is to run on the node.
func (s *scope) expectsValidator(planned *plan.NodePlan) bool {
	return slices.ContainsFunc(planned.Essential, func(onNode plan.OperandOnNode) bool {
		return s.isValidator(string(onNode.Operand)) && onNode.Expectation == plan.Expected
	})
}

// podOf returns what the planner has to know of a pod, nil for nil.
func (s *scope) podOf(pod *corev1.Pod) *upgrade.Pod {
	if pod == nil {
		return nil
	}
	return new(observe.UpgradePod(pod, s.now))
}

// groupOf returns the group of the nodes of a node pool: that of the node pool if it has an upgradePolicy of its own,
// else the common one, which is empty.
func (s *scope) groupOf(nodePool string) string {
	for i := range s.basis.Decisions.Input.Spec.NodePools {
		pool := &s.basis.Decisions.Input.Spec.NodePools[i]
		if pool.Name == nodePool && pool.Driver != nil && pool.Driver.UpgradePolicy != nil {
			return nodePool
		}
	}
	return ""
}

// policies returns the upgrade policies by group.
func (s *scope) policies() map[string]upgrade.Policy {
	policies := map[string]upgrade.Policy{}
	if s.basis.Decisions == nil {
		return policies
	}
	policies[""] = observe.UpgradePolicy(*s.basis.Decisions.Input.Spec.Driver.UpgradePolicy, s.Timing.RetryFailed)
	for _, entry := range s.view.Nodes {
		if entry.Planned == nil {
			continue
		}
		planned := &entry.Planned.NodePlan
		group := s.groupOf(planned.NodePool)
		if _, known := policies[group]; !known && entry.BasisVersion == s.basis.Version {
			policies[group] = observe.UpgradePolicy(*planned.Spec.Driver.UpgradePolicy, s.Timing.RetryFailed)
		}
	}
	return policies
}

// nodeReference refers to a node in Events.
func nodeReference(node *corev1.Node) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}
}

// ownerOf is the reference of a pod to the DaemonSet that it is deleted with. It is not the controller: a DaemonSet
// manages only pods that it has created.
func ownerOf(ds *appsv1.DaemonSet) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: ds.Name, UID: ds.UID}}
}
