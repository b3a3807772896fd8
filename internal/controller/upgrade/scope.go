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
	"github.com/clusterpolicy/gpu-operator/internal/kube/requeue"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// scope is one pass.
type scope struct {
	*Reconciler
	now   time.Time
	basis *fleet.Basis
	view  fleet.UpgradeView

	// The cluster as observed. observed has what steps need of its nodes, by name.
	cluster  upgrade.Cluster
	observed map[string]*observed
	// slots is the live ConfigMap; nil if there is none, or if it was not read because no node needs it.
	slots *corev1.ConfigMap
	// claims are those of pods of users, each read once.
	claims *observe.GPUClaims

	planned upgrade.Plan
	// requeueDelay is the time until the next pass without an event; 0 for none.
	requeueDelay time.Duration
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
		Reconciler: r, now: r.Clock.Now(), basis: r.Fleet.Basis(), view: r.Fleet.UpgradeView(noNames),
		claims: observe.NewGPUClaims(r.Live),
	}
}

// isDue reports whether the cluster is known well enough to be read: it is not before the first pass of the policy, and
// while NVIDIA's operator is at work.
func (s *scope) isDue() bool {
	return s.view.Hydrated && s.basis != nil && (s.basis.Decisions != nil || !s.basis.KeepNodes)
}

// assessmentLeft returns how long the pass still waits for a new Basis to assess all nodes; 0 if it does not.
func (s *scope) assessmentLeft() time.Duration {
	left := s.Timing.Assessment - s.now.Sub(s.basis.Since)
	if s.basis.Decisions == nil || left <= 0 || !slices.ContainsFunc(s.view.Active, s.isUnassessed) {
		return 0
	}
	return left
}

// isUnassessed reports whether the operator manages the node, and has not assessed it by the Basis of this pass.
func (s *scope) isUnassessed(entry *fleet.Entry) bool {
	return entry.Managed() && entry.BasisVersion != s.basis.Version
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
	if s.basis.Decisions == nil && len(s.cluster.Slots) > 0 && !slices.ContainsFunc(s.cluster.Nodes, hasRecord) {
		s.planned.Slots = upgrade.Slots{}
	}
}

// requeueAfter schedules the next pass after this time at the latest; 0 is ignored.
func (s *scope) requeueAfter(wait time.Duration) {
	s.requeueDelay = requeue.MinDelay(s.requeueDelay, wait)
}

// publish stores the report, for the status of the policy and for metrics.
func (s *scope) publish() {
	if s.basis.Decisions == nil {
		s.Fleet.SetUpgrades(nil)
		return
	}
	s.Fleet.SetUpgrades(&s.planned.Report)
}

func (s *scope) result() (reconcile.Result, error) {
	delay := s.requeueDelay
	if until := s.planned.Until; !until.IsZero() {
		delay = requeue.MinDelay(delay, max(until.Sub(s.now), time.Millisecond))
	}
	return reconcile.Result{RequeueAfter: delay}, nil
}

// endWithoutSlots ends a pass whose slots could not be written: no step may be carried out. After a conflict it is
// repeated, since another manager has granted slots.
func (s *scope) endWithoutSlots(err error) (reconcile.Result, error) {
	s.publish()
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
		s.requeueAfter(s.Timing.RetryStale)
		return s.result()
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
		s.memory.noteCall(node, what, nil, s.now, &s.Timing)
		return err == nil
	case apierrors.IsConflict(err):
		s.lockAndRequeueAfter(s.Timing.RetryStale)
		return false
	}
	wait := s.memory.noteCall(node, what, err, s.now, &s.Timing)
	s.lockAndRequeueAfter(wait)
	log.FromContext(ctx).Error(fmt.Errorf("%s of node %s: %w", what, node, err),
		"The driver upgrade of a node has to wait", "node", node, "retryAfter", wait)
	return false
}

// lockAndRequeueAfter is requeueAfter for calls that run at the same time.
func (s *scope) lockAndRequeueAfter(wait time.Duration) {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	s.requeueAfter(wait)
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
