package upgrade

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/freshness"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/observe"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// observeNodes adds the nodes to the cluster: those that the operator manages, and those that still have the state of
// an upgrade.
func (s *scope) observeNodes(ctx context.Context) error {
	nodes := &corev1.NodeList{}
	if err := s.Client.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	entries := make(map[string]*fleet.Entry, len(s.view.Nodes))
	for _, entry := range s.view.Nodes {
		entries[entry.Facts.Name] = entry
	}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		if entry := entries[node.Name]; entry != nil || hasUpgrade(node) {
			if err := s.addNode(ctx, node, entry); err != nil {
				return err
			}
		}
	}
	slices.SortFunc(s.cluster.Nodes, func(a, b upgrade.Node) int { return strings.Compare(a.Name, b.Name) })
	return nil
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
	of := &observed{node: object, hold: s.mustHold(object, entry)}
	s.observed[object.Name] = of
	facts := &observe.UpgradeFacts{Node: object, Pods: pods, Now: s.now}
	if entry != nil && entry.Planned != nil && s.basis.Decisions != nil {
		facts.Decisions, facts.Planned = s.basis.Decisions, &entry.Planned.NodePlan
		facts.DaemonSets = s.basis.Stack.DaemonSets
		facts.GPUReady = entry.BasisVersion != 0 && entry.Latest.InService()
	}
	node, daemonSet := observe.UpgradeNode(facts)
	of.daemonSet = daemonSet
	node.Failing, node.FailingSince = s.memory.failing(object.Name, s.now, &s.Timing)
	s.cluster.Nodes = append(s.cluster.Nodes, node)
	return nil
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

// policies returns the upgrade policies by group.
func (s *scope) policies() map[string]upgrade.Policy {
	policies := map[string]upgrade.Policy{}
	if s.basis.Decisions == nil {
		return policies
	}
	add := func(group string, spec *v1.DriverUpgradePolicySpec) {
		policies[group] = observe.UpgradePolicy(*spec, s.Timing.FirstRetryFailed, s.Timing.LastRetryFailed)
	}
	add("", s.basis.Decisions.Input.Spec.Driver.UpgradePolicy)
	for _, entry := range s.view.Nodes {
		if entry.Planned == nil {
			continue
		}
		planned := &entry.Planned.NodePlan
		group := observe.UpgradeGroup(s.basis.Decisions.Input.Spec, planned)
		if _, known := policies[group]; !known && entry.BasisVersion == s.basis.Version {
			add(group, planned.Spec.Driver.UpgradePolicy)
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
