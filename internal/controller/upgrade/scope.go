package upgrade

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/controller/allnodes"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// scope is one pass.
type scope struct {
	*Reconciler
	allnodes.Pass
	view fleet.UpgradeView

	// The cluster as observed. observed has what steps need of its nodes, by name.
	cluster  upgrade.Cluster
	observed map[string]*observed
	// slots is the live ConfigMap; nil if there is none, or if it was not read because no node needs it.
	slots *corev1.ConfigMap
	// claims are those of pods of users, each read once.
	claims *observe.GPUClaims

	planned upgrade.Plan
}

// observed is what was read of one node.
type observed struct {
	// node as cached.
	node *corev1.Node
	// entry is nil for a node that the operator does not manage.
	entry *fleet.Entry
	// daemonSet is the one that the node's new driver comes from; nil for none.
	daemonSet *appsv1.DaemonSet
	// hold: its state may be outdated, so no step is carried out.
	hold bool
}

func (r *Reconciler) newScope() *scope {
	return &scope{
		Reconciler: r, Pass: r.Timing.Begin(r.Fleet, r.Clock.Now()), view: r.Fleet.UpgradeView(noNames),
		claims: observe.NewGPUClaims(r.Live),
	}
}

// refreshCluster reads the cluster, and updates what passes remember of it. A node at rest that has a slot needs a
// plan, which ends the slot.
func (s *scope) refreshCluster(ctx context.Context) error {
	if err := s.readNodes(ctx); err != nil {
		return err
	}
	s.holdNodes()
	if err := s.refreshSlots(ctx); err != nil {
		return err
	}
	if slots := s.cluster.Slots; s.isAnyAtRest(slots) {
		s.view = s.Fleet.UpgradeView(maps.Keys(slots))
		if err := s.readNodes(ctx); err != nil {
			return err
		}
		s.holdNodes()
		s.cluster.Slots = slots
	}
	s.refreshWorkloads(ctx)
	s.refreshTenants(ctx)
	return nil
}

// plan plans the next steps. Without a policy, the slots end with the last record: no node can need them.
func (s *scope) plan() {
	s.planned = s.cluster.Plan()
	hasRecord := func(node upgrade.Node) bool { return node.Record != nil || node.MIG.Drain != nil }
	if s.Basis.Decisions == nil && len(s.cluster.Slots) > 0 && !slices.ContainsFunc(s.cluster.Nodes, hasRecord) {
		s.planned.Slots = upgrade.Slots{}
	}
}

// publish stores the report, for the status of the policy and for metrics.
func (s *scope) publish() {
	if s.Basis.Decisions == nil {
		s.Fleet.SetUpgrades(nil)
		return
	}
	s.Fleet.SetUpgrades(&s.planned.Report)
}

// endWithoutSlots ends a pass whose slots could not be written: no step may be carried out. After a conflict it is
// repeated, since another manager has granted slots.
func (s *scope) endWithoutSlots(err error) (reconcile.Result, error) {
	s.publish()
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
		s.RequeueAfter(s.Timing.RetryStale)
		return s.Result(s.planned.Until)
	}
	return reconcile.Result{}, err
}

// readsPods is the call that reads the pods of users on a node.
const readsPods = "reading the pods"

// call makes one call for a node, with the deadline, and returns whether it has succeeded. An error concerns the node
// alone: it delays the next calls for it. A conflict is none: the node or the pod has changed since it was read.
func (s *scope) call(ctx context.Context, node, what string, do func(context.Context) error) bool {
	ctx, cancel := context.WithTimeout(ctx, s.Timing.Deadline)
	defer cancel()
	err := do(ctx)
	switch {
	case err == nil || apierrors.IsNotFound(err):
		s.memory.noteCall(node, what, nil, s.Now, &s.Timing)
		return err == nil
	case apierrors.IsConflict(err):
		s.lockAndRequeueAfter(s.Timing.RetryStale)
		return false
	}
	wait := s.memory.noteCall(node, what, err, s.Now, &s.Timing)
	s.lockAndRequeueAfter(wait)
	log.FromContext(ctx).Error(fmt.Errorf("%s of node %s: %w", what, node, err),
		"The driver upgrade of a node has to wait", "node", node, "retryAfter", wait)
	return false
}

// lockAndRequeueAfter is requeueAfter for calls that run at the same time.
func (s *scope) lockAndRequeueAfter(wait time.Duration) {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	s.RequeueAfter(wait)
}

// forget drops what was remembered of nodes and pods that no longer matter.
func (s *scope) forget(pods map[types.UID]bool) {
	nodes := make(map[string]bool, len(s.observed))
	for name := range s.observed {
		nodes[name] = true
	}
	s.memory.prune(nodes, pods, s.exists)
}

// keyOf is the key of an object in the operator's namespace.
func (s *scope) keyOf(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: s.Namespace, Name: name}
}
