package plan

import (
	"fmt"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// Decisions are what follows from the spec and the objects that it references, for every node. They are immutable and
// safe for concurrent use.
type Decisions struct {
	// Catalogue is sorted.
	Catalogue operand.Catalogue
	// Input of the decisions. Layouts and Optional are empty, as they depend on the cluster; see Plan.Input.
	Input operand.Input
	// NodePools are those of spec.nodePools, in their order.
	NodePools []NodePool
	// Installed are the operands that the spec does not disable. They include held operands, whose running pods still
	// write their markers.
	Installed map[operand.Name]bool
	decisions map[operand.Name]operand.Decision
	// operandPools are NodePools, for operand.PoolOf.
	operandPools []operand.NodePool
}

// Decide decides for a sorted catalogue. Neither the catalogue nor what in references may be changed afterwards.
// Layouts and Optional of in are ignored.
func Decide(catalogue operand.Catalogue, in operand.Input) *Decisions {
	in.Layouts, in.Optional = nil, nil
	d := &Decisions{
		Catalogue:    catalogue,
		Input:        in,
		Installed:    map[operand.Name]bool{},
		decisions:    map[operand.Name]operand.Decision{},
		operandPools: operand.NodePools(in.Spec),
	}
	for _, o := range catalogue {
		decision := o.Decide(in)
		d.decisions[o.Name] = decision
		d.Installed[o.Name] = decision.Choice != operand.Absent
	}
	for _, pool := range d.operandPools {
		decided := d.nodePool(pool)
		d.NodePools = append(d.NodePools, decided)
		for name, decision := range decided.decisions {
			d.Installed[name] = d.Installed[name] || decision.Choice != operand.Absent
		}
	}
	return d
}

func (d *Decisions) installedOperands() operand.Catalogue {
	var installed operand.Catalogue
	for _, o := range d.Catalogue {
		if d.Installed[o.Name] {
			installed = append(installed, o)
		}
	}
	return installed
}

// decision returns the decision about an operand for the nodes of a pool, or of none.
func (d *Decisions) decision(o *operand.Operand, pool *NodePool) operand.Decision {
	if pool != nil {
		if own, varies := pool.decisions[o.Name]; varies {
			return own
		}
	}
	return d.decisions[o.Name]
}

// installable returns the decision, or a refusal if anything that the operand needs in the cluster is missing.
func (d *Decisions) installable(o *operand.Operand, pool *NodePool) operand.Decision {
	decision := d.decision(o, pool)
	if decision.Choice != operand.Install {
		return decision
	}
	if pool != nil && o.VariesIn(pool.NodePoolSpec) {
		// The references of the pool's spec exist, or the decision would have refused it.
		return d.prerequisites(o)
	}
	return d.blocked(*o)
}

// blocked refuses an operand if anything that it needs in the cluster is missing.
func (d *Decisions) blocked(o operand.Operand) operand.Decision {
	if waits := d.prerequisites(&o); waits.Choice != operand.Install {
		return waits
	}
	return d.Input.CheckReferences(&o)
}

// prerequisites refuses an operand if another one that it requires in the cluster is not installed.
func (d *Decisions) prerequisites(o *operand.Operand) operand.Decision {
	for _, r := range o.Requires {
		if r.Scope == operand.Cluster && d.decisions[r.On].Choice != operand.Install && !d.decisions[r.On].Unneeded {
			return operand.Refused(v1.ReasonWaitingForOperand,
				fmt.Sprintf("needs %s, which is not installed: %s", r.On, d.decisions[r.On].Message))
		}
	}
	return operand.Installed()
}

// serves decides whether the operand is to run on the node, without regard to its deploy labels.
func (d *Decisions) serves(o operand.Operand, node nodeinfo.Facts) operand.Decision {
	if selected := d.selects(o, node); selected.Choice != operand.Install {
		return selected
	}
	return d.canServe(o, node)
}

// canServe is serves without regard to nodeSelectors.
func (d *Decisions) canServe(o operand.Operand, node nodeinfo.Facts) operand.Decision {
	if !o.ServesWorkload(d.Input.WorkloadOf(node)) {
		return operand.Decision{Choice: operand.Absent}
	}
	if o.PerPool {
		if known := operand.CheckPool(node, d.inputOf(node).PoolKey()); known.Choice != operand.Install {
			return known
		}
	}
	if o.ServesNode != nil {
		return o.ServesNode(d.inputOf(node), node)
	}
	if o.Serves == nil {
		return operand.Installed()
	}
	return o.Serves(node)
}
