package preview

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/policy/fieldnotes"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

// pass is what the operator would decide after an edit.
type pass struct {
	// cluster has the policy that the edit replaces, and edit the one that replaces it.
	cluster *Cluster
	edit    Edit
	// nodes of the cluster, as the node controller labels them, with their facts.
	nodes []*corev1.Node
	facts []nodeinfo.Facts
	// plan for these nodes, and moved the one as soon as driver upgrades have moved them to other driver pools.
	plan, moved plan.Plan
	// ignored has a sentence for each variable of the operator that should replace an image and does not.
	ignored []string
}

// passOf computes the pass after an edit. It fails if the operator would not apply the policy.
func passOf(c *Cluster, edit Edit, now time.Time) (*pass, error) {
	edit, err := c.complete(edit)
	if err != nil {
		return nil, err
	}
	if active := c.activeAfter(edit, now); active != nil && active.Name != edit.Policy.Name {
		return nil, fmt.Errorf("%s %w", active.Name, errInactive)
	}
	c = c.before(edit)
	if edit.AtSource {
		edit.Policy, c.mirror = edit.Policy.DeepCopy(), effective.Of(edit.Policy.Spec).Global.Registry
		if edit.Policy.Spec.Global != nil {
			edit.Policy.Spec.Global.Registry = ""
		}
	}
	catalogue, err := operands.Catalogue()
	if err != nil {
		return nil, err
	}
	in, ignored := c.input(catalogue, edit)
	decisions := plan.Decide(catalogue, in)
	nodes, moved := c.settledNodes(decisions, now)
	return &pass{
		cluster: c, edit: edit, nodes: nodes, facts: factsOf(nodes), ignored: ignored,
		plan: c.planFor(decisions, in.Optional, nodes), moved: c.planFor(decisions, in.Optional, moved),
	}, nil
}

// notes returns sentences about the policy, and about what the plan depends on.
func (p *pass) notes() []string {
	in, c := p.plan.Input, p.cluster
	return slices.Concat(c.frozen(), fieldnotes.Of(p.edit.Policy.Spec), AboutDrivers(p.edit.Drivers, in),
		p.plan.Doubtful(), notes(p.plan, p.facts), Unread(p.plan.Catalogue, in), p.ignored, c.aboutOperator(),
		c.aboutOpenShift())
}

// imageNotes returns those of the sentences that are about images which are missing or may be others.
func (p *pass) imageNotes() []string {
	return slices.Concat(notes(p.plan, p.facts), p.ignored, p.cluster.aboutOperator())
}
