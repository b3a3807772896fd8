package plan

import (
	"fmt"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
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
	// MayRun are the operands that the spec does not disable. They include held operands, whose running pods still
	// write their markers.
	MayRun    map[operand.Name]bool
	decisions map[operand.Name]operand.Decision
	// driverObjects are those of NVIDIADriver objects, in the order of Input.NVIDIADrivers, if the spec uses them.
	driverObjects []NodePool
	// operandPools are NodePools, for operand.NodePoolOf.
	operandPools []operand.NodePool
}

// Decide decides for a sorted catalogue. Neither the catalogue nor what in references may be changed afterwards.
// Layouts and Optional of in are ignored.
func Decide(catalogue operand.Catalogue, in operand.Input) *Decisions {
	in.Layouts, in.Optional = nil, nil
	d := &Decisions{
		Catalogue:    catalogue,
		Input:        in,
		MayRun:       map[operand.Name]bool{},
		decisions:    map[operand.Name]operand.Decision{},
		operandPools: operand.NodePools(in.Spec),
	}
	for _, o := range catalogue {
		decision := decideOf(&o, in)
		d.decisions[o.Name] = decision
		d.MayRun[o.Name] = decision.Choice != operand.Absent
	}
	for _, nodePool := range d.operandPools {
		decided := d.nodePool(nodePool)
		d.NodePools = append(d.NodePools, decided)
		for name, decision := range decided.decisions {
			d.MayRun[name] = d.MayRun[name] || decision.Choice != operand.Absent
		}
	}
	if in.UsesNVIDIADrivers() {
		for i, pool := range in.DriverPools() {
			d.driverObjects = append(d.driverObjects, d.driverPool(in.NVIDIADrivers[i].Name, pool))
		}
	}
	return d
}

// decideOf decides from the spec whether the operand is installed, and refuses it if no pod can be as the spec says.
func decideOf(o *operand.Operand, in operand.Input) operand.Decision {
	decision := o.Decide(in)
	if decision.Choice == operand.Install {
		decision = in.CheckPods(o)
	}
	return decision
}

func (d *Decisions) mayRunOperands() operand.Catalogue {
	var mayRun operand.Catalogue
	for _, o := range d.Catalogue {
		if d.MayRun[o.Name] {
			mayRun = append(mayRun, o)
		}
	}
	return mayRun
}

// decision returns the decision about an operand for the nodes of a node pool, or of none.
func (d *Decisions) decision(o *operand.Operand, nodePool *NodePool) operand.Decision {
	if nodePool != nil {
		if own, varies := nodePool.decisions[o.Name]; varies {
			return own
		}
	}
	return d.decisions[o.Name]
}

// decisionInCluster returns the decision, or a refusal if anything that the operand needs in the cluster is missing.
func (d *Decisions) decisionInCluster(o *operand.Operand, nodePool *NodePool) operand.Decision {
	decision := d.decision(o, nodePool)
	if decision.Choice != operand.Install {
		return decision
	}
	if nodePool != nil && o.VariesIn(nodePool.NodePoolSpec) {
		// The references of the node pool's spec exist, or the decision would have refused it.
		return d.checkRequirements(o)
	}
	return d.checkCluster(*o)
}

// checkCluster refuses an operand if anything that it needs in the cluster is missing.
func (d *Decisions) checkCluster(o operand.Operand) operand.Decision {
	if waits := d.checkRequirements(&o); waits.Choice != operand.Install {
		return waits
	}
	if o.PerPool && d.Input.UsesNVIDIADrivers() {
		// Each object is refused on its own if a reference of it is missing.
		return operand.Accept()
	}
	return d.Input.CheckReferences(&o)
}

// checkRequirements refuses an operand if another one that it requires in the cluster is not installed.
func (d *Decisions) checkRequirements(o *operand.Operand) operand.Decision {
	for _, r := range o.Requires {
		if r.Scope == operand.Cluster && d.decisions[r.On].Choice != operand.Install &&
			!d.decisions[r.On].OptionalForDependents {
			return operand.Refuse(v1.ReasonWaitingForOperand,
				fmt.Sprintf("needs %s, which is not installed: %s", r.On, d.decisions[r.On].Message))
		}
	}
	return operand.Accept()
}

// checkNode decides whether the operand is to run on the node, without regard to its deploy labels.
func (d *Decisions) checkNode(o operand.Operand, node nodeinfo.Facts) operand.Decision {
	if selected := d.checkNodeSelector(o, node); selected.Choice != operand.Install {
		return selected
	}
	return d.checkFacts(o, node)
}

// checkFacts is checkNode without regard to nodeSelectors.
func (d *Decisions) checkFacts(o operand.Operand, node nodeinfo.Facts) operand.Decision {
	if !o.ServesWorkload(d.Input.WorkloadOf(node)) {
		return operand.Decision{Choice: operand.Absent}
	}
	if o.PerPool {
		if owned := d.checkDriverOwner(node); owned.Choice != operand.Install {
			return owned
		}
		if known := checkPoolKnown(node, d.driverInput(node).PoolCriteria()); known.Choice != operand.Install {
			return known
		}
	}
	if o.ServesNode != nil {
		return o.ServesNode(d.inputForNode(node), node)
	}
	if o.Serves == nil {
		return operand.Accept()
	}
	return o.Serves(node)
}

// checkPoolKnown refuses a node whose driver pool is unknown, as the pool determines the driver image.
func checkPoolKnown(f nodeinfo.Facts, criteria nodeinfo.PoolCriteria) operand.Decision {
	if _, complete := f.PoolInUse(criteria); complete {
		return operand.Accept()
	}
	_, system := f.PoolByFacts(nodeinfo.PoolCriteria{})
	switch {
	case system && criteria.Kernel:
		return operand.Refuse(
			v1.ReasonFactsMissing,
			"no discovery label for the kernel, which selects the precompiled driver image",
		)
	case system:
		return operand.Refuse(v1.ReasonFactsMissing,
			"no discovery label for the release of Red Hat CoreOS, which selects the image of the driver toolkit")
	}
	return operand.Refuse(
		v1.ReasonFactsMissing,
		"no discovery labels for the operating system, which select the driver image",
	)
}
