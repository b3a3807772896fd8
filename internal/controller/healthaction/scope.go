package healthaction

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/controller/allnodes"
	"github.com/clusterpolicy/gpu-operator/internal/health/healthaction"
)

// scope is one pass.
type scope struct {
	*Reconciler
	allnodes.Pass
	view   fleet.View
	policy *healthaction.Policy

	nodes    []healthaction.Node
	observed map[string]*observed
	planned  healthaction.Plan
}

// observed is what was read of one node.
type observed struct {
	node *corev1.Node
	seen healthaction.Node
	// entry is nil for a node that the operator does not manage.
	entry *fleet.Entry
	// hold: its state may be outdated, so no step is carried out. written: one was.
	hold, written bool
}

func (r *Reconciler) newScope() *scope {
	s := &scope{Reconciler: r, view: r.Fleet.View(), Pass: r.Timing.Begin(r.Fleet, r.Clock.Now())}
	s.policy = policyOf(s.Basis)
	return s
}

// policyOf returns the policy of a Basis; nil if that is nil or has no Decisions.
func policyOf(basis *fleet.Basis) *healthaction.Policy {
	if basis == nil || basis.Decisions == nil {
		return nil
	}
	return new(healthaction.PolicyOf(basis.Decisions.Input.Spec.Health.Actions))
}

// readNodes reads the nodes that the operator manages, and those on which something has to be undone.
func (s *scope) readNodes(ctx context.Context) error {
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
		s.observed[node.Name] = &observed{node: object, seen: node, entry: entry}
	}
	return nil
}

// facts returns what the planner's view of a node follows from. entry is nil for one that the operator does not manage.
func (s *scope) facts(object *corev1.Node, entry *fleet.Entry) *observe.HealthFacts {
	facts := &observe.HealthFacts{Node: object, Managed: entry != nil}
	if entry == nil || entry.Planned == nil || s.Basis.Decisions == nil {
		return facts
	}
	facts.Decisions, facts.Planned = s.Basis.Decisions, &entry.Planned.NodePlan
	facts.Assessment = &entry.Latest
	return facts
}

// holdNodes holds the nodes for which no step may be carried out now.
func (s *scope) holdNodes() {
	for name, of := range s.observed {
		of.hold = s.Hold(of.node, of.entry, s.memory.versions, s.memory.failures[name].Until.Sub(s.Now))
	}
}

// plan plans the next steps.
func (s *scope) plan() {
	cluster := healthaction.Cluster{Now: s.Now, Policy: s.policy, Nodes: s.nodes}
	s.planned = cluster.Plan()
}

// remember keeps what the plan means for the next passes.
func (s *scope) remember() {
	s.memory.endRejections(s.planned.Steps, s.Now)
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
