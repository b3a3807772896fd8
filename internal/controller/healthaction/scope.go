package healthaction

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/health/healthaction"
	"github.com/clusterpolicy/gpu-operator/internal/kube/freshness"
	"github.com/clusterpolicy/gpu-operator/internal/kube/requeue"
)

// scope is one pass.
type scope struct {
	*Reconciler
	now    time.Time
	view   fleet.View
	basis  *fleet.Basis
	policy *healthaction.Policy

	nodes    []healthaction.Node
	observed map[string]*observed
	planned  healthaction.Plan
	// requeueDelay is the time until the next pass without an event; 0 for none.
	requeueDelay time.Duration
}

// observed is what was read of one node.
type observed struct {
	node *corev1.Node
	seen healthaction.Node
	// hold: its state may be outdated, so no step is carried out. written: one was.
	hold, written bool
}

func (r *Reconciler) newScope() *scope {
	s := &scope{Reconciler: r, now: r.Clock.Now(), view: r.Fleet.View(), basis: r.Fleet.Basis()}
	s.policy = policyOf(s.basis)
	return s
}

// policyOf returns the policy of a Basis; nil if that is nil or has no Decisions.
func policyOf(basis *fleet.Basis) *healthaction.Policy {
	if basis == nil || basis.Decisions == nil {
		return nil
	}
	return new(healthaction.PolicyOf(basis.Decisions.Input.Spec.Health.Actions))
}

// isDue reports whether the cluster is known well enough to be observed: it is not before the first pass of the policy,
// nor for some time after a new Basis, until it has assessed all nodes.
func (s *scope) isDue() bool {
	switch {
	case !s.view.Hydrated || s.basis == nil:
		return false
	case s.policy == nil:
		return !s.basis.KeepNodes
	}
	left := s.Timing.Assessment - s.now.Sub(s.basis.Since)
	if left > 0 && s.view.UnassessedCount(s.basis) > 0 {
		s.requeueAfter(left)
		return false
	}
	return true
}

// observe reads the nodes that the operator manages, and those on which something has to be undone.
func (s *scope) observe(ctx context.Context) error {
	nodes := &corev1.NodeList{}
	if err := s.Client.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	entries := make(map[string]*fleet.Entry, len(s.view.Nodes))
	for _, entry := range s.view.Nodes {
		entries[entry.Facts.Name] = entry
	}
	s.nodes, s.observed = nil, map[string]*observed{}
	for i := range nodes.Items {
		object := &nodes.Items[i]
		entry := entries[object.Name]
		node := observe.HealthNode(s.facts(object, entry))
		if entry == nil && !node.HasRecord && !node.Tainted {
			continue
		}
		rejection := s.memory.rejections[node.Name]
		node.RejectedUntil, node.Rejected = rejection.until, rejection.message
		s.nodes = append(s.nodes, node)
		s.observed[node.Name] = &observed{node: object, seen: node, hold: s.mustHold(object, entry)}
	}
	s.memory.prune(func(node string) bool { return s.observed[node] != nil })
	return nil
}

// facts returns what the planner's view of a node follows from. entry is nil for one that the operator does not manage.
func (s *scope) facts(object *corev1.Node, entry *fleet.Entry) *observe.HealthFacts {
	facts := &observe.HealthFacts{Node: object, Managed: entry != nil}
	if entry == nil || entry.Planned == nil || s.basis.Decisions == nil {
		return facts
	}
	facts.Decisions, facts.Planned = s.basis.Decisions, &entry.Planned.NodePlan
	facts.Assessment = &entry.Latest
	return facts
}

// mustHold reports whether no step may be carried out for a node now: it is not assessed by the current Basis, or what
// was read does not have the last write to it, or a call for it has just failed.
func (s *scope) mustHold(object *corev1.Node, entry *fleet.Entry) bool {
	if entry != nil && s.basis.Decisions != nil && entry.BasisVersion != s.basis.Version {
		return true
	}
	if freshness.Stale(object.ResourceVersion, s.memory.versions[object.Name]) {
		s.requeueAfter(s.Timing.RetryStale)
		return true
	}
	delete(s.memory.versions, object.Name)
	if left := s.memory.failures[object.Name].until.Sub(s.now); left > 0 {
		s.requeueAfter(left)
		return true
	}
	return false
}

// plan plans the next steps.
func (s *scope) plan() {
	cluster := healthaction.Cluster{Now: s.now, Policy: s.policy, Nodes: s.nodes}
	s.planned = cluster.Plan()
	s.memory.endRejections(s.planned.Steps, s.now)
	s.memory.idle = s.policy != nil && !s.policy.Acts() && len(s.planned.Steps) == 0 && len(s.planned.Nodes) == 0
}

// publish stores the verdicts, for the conditions of the nodes and for metrics. What was not carried out is not stored
// as done.
func (s *scope) publish() {
	for i := range s.planned.Steps {
		step := &s.planned.Steps[i]
		of := s.observed[step.Node]
		if of.written {
			continue
		}
		failure, failed := s.memory.failures[step.Node]
		if verdict, planned := s.planned.Nodes[step.Node]; planned || failed {
			s.planned.Nodes[step.Node] = verdict.Missed(&of.seen, step, failed, failure.message)
		}
	}
	s.Fleet.SetHealthActions(s.planned.Nodes)
}

// requeueAfter schedules the next pass after this time at the latest; 0 is ignored.
func (s *scope) requeueAfter(wait time.Duration) {
	s.requeueDelay = requeue.MinDelay(s.requeueDelay, wait)
}

func (s *scope) result() (reconcile.Result, error) {
	if until := s.planned.Until; !until.IsZero() {
		s.requeueAfter(max(until.Sub(s.now), time.Millisecond))
	}
	return reconcile.Result{RequeueAfter: s.requeueDelay}, nil
}
