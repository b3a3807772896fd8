package upgrade

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// noNames is no node.
func noNames(func(string) bool) {}

// readNodes reads the nodes of the cluster that are active: those that the operator manages, and those that still have
// the state of an upgrade. The others are at rest, and are not read.
func (s *scope) readNodes(ctx context.Context) error {
	s.cluster = upgrade.Cluster{Now: s.Now, Policies: s.policies(), Rest: s.view.Rest}
	s.observed = make(map[string]*observed, len(s.view.Active))
	for _, entry := range s.view.Active {
		node := &corev1.Node{}
		err := s.Client.Get(ctx, client.ObjectKey{Name: entry.Facts.Name}, node, client.UnsafeDisableDeepCopy)
		switch {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return fmt.Errorf("reading node %s: %w", entry.Facts.Name, err)
		case entry.Managed():
			err = s.addNode(ctx, node, entry)
		case hasUpgrade(node):
			err = s.addNode(ctx, node, nil)
		}
		if err != nil {
			return err
		}
	}
	slices.SortFunc(s.cluster.Nodes, func(a, b upgrade.Node) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// isAnyAtRest reports whether a node with a slot was not observed, as it is at rest.
func (s *scope) isAnyAtRest(slots upgrade.Slots) bool {
	for node := range slots {
		if s.observed[node] == nil && s.Fleet.Get(node) != nil {
			return true
		}
	}
	return false
}

// hasUpgrade reports whether a node has the state of an upgrade, or of a drain for a MIG layout.
func hasUpgrade(node *corev1.Node) bool {
	_, recorded := node.Annotations[labels.UpgradeRecord]
	_, drained := node.Annotations[labels.MIGDrain]
	return recorded || drained || node.Labels[labels.UpgradeState] != ""
}

// addNode adds a node to the cluster. entry is nil for one that the operator does not manage.
func (s *scope) addNode(ctx context.Context, object *corev1.Node, entry *fleet.Entry) error {
	pods, err := observe.PodsOnNode(ctx, s.Client, s.Namespace, object.Name)
	if err != nil {
		return err
	}
	of := &observed{node: object, entry: entry}
	s.observed[object.Name] = of
	facts := &observe.UpgradeFacts{Node: object, Pods: pods, Now: s.Now}
	if entry != nil && entry.Planned != nil && s.Basis.Decisions != nil {
		facts.Decisions, facts.Planned = s.Basis.Decisions, &entry.Planned.NodePlan
		facts.DaemonSets = s.Basis.Stack.DaemonSets
		facts.GPUReady = entry.BasisVersion != 0 && entry.Latest.InService()
	}
	node, daemonSet := observe.UpgradeNode(facts)
	of.daemonSet = daemonSet
	node.Failing, node.FailingSince = s.memory.failing(object.Name, s.Now, &s.Timing)
	s.cluster.Nodes = append(s.cluster.Nodes, node)
	return nil
}

// holdNodes holds the nodes for which no step may be carried out now.
func (s *scope) holdNodes() {
	for name, of := range s.observed {
		of.hold = s.Hold(of.node, of.entry, s.memory.versions, s.memory.remaining(name, s.Now))
	}
}

// policies returns the upgrade policies of the groups of the active nodes. That of a group whose nodes are not assessed
// by the current Basis yet is the one before it. A slot that it grants is given back after their assessment: nothing
// has been done with it, as such nodes are held.
func (s *scope) policies() map[string]upgrade.Policy {
	if s.Basis.Decisions == nil {
		return nil
	}
	policies := map[string]upgrade.Policy{}
	add := func(group string, spec *v1.DriverUpgradePolicySpec) {
		if _, known := policies[group]; !known {
			policies[group] = observe.UpgradePolicy(*spec, s.Timing.FirstRetryFailed, s.Timing.LastRetryFailed)
		}
	}
	add("", s.Basis.Decisions.Input.Spec.Driver.UpgradePolicy)
	for _, current := range []bool{true, false} {
		for _, entry := range s.view.Active {
			if entry.Planned == nil || !entry.Managed() || (entry.BasisVersion == s.Basis.Version) != current {
				continue
			}
			planned := &entry.Planned.NodePlan
			add(observe.UpgradeGroup(s.Basis.Decisions.Input.Spec, planned), planned.Spec.Driver.UpgradePolicy)
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
