package plan

import (
	"fmt"
	"slices"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// NodePool is what follows from the spec for a node pool, independent of its nodes.
type NodePool struct {
	operand.NodePool
	// Decision is Install, or Refused if the node pool is not applied to its nodes.
	Decision operand.Decision
	// DriverVersion is the version of the nodes' driver in the spec, without the operating system; empty for none.
	DriverVersion string

	in operand.Input
	// decisions about the operands that the node pool overrides; those about the others are in Decisions.
	decisions map[operand.Name]operand.Decision
}

// anySystem is a placeholder for the driver pools when only the spec is checked: an invalid image is invalid for every
// operating system.
var anySystem = []nodeinfo.Pool{{Name: "ubuntu24.04-amd64", OSTag: "ubuntu24.04"}}

// nodePool decides from the spec alone about the operands that a node pool overrides.
func (d *Decisions) nodePool(nodePool operand.NodePool) NodePool {
	found := NodePool{
		NodePool:  nodePool,
		Decision:  nodePool.SelectorDecision,
		in:        d.Input.ForNodePool(nodePool),
		decisions: map[operand.Name]operand.Decision{},
	}
	for i := range d.Catalogue {
		o := &d.Catalogue[i]
		if !o.VariesIn(nodePool.NodePoolSpec) {
			continue
		}
		decision := d.decideOwn(o, found.in)
		if decision.Choice == operand.Refused {
			decision.Message = fmt.Sprintf("node pool %s: %s", nodePool.Name, decision.Message)
			if found.Decision.Choice == operand.Install && d.decisions[o.Name].Choice != operand.Refused {
				found.Decision = decision
			}
		}
		found.decisions[o.Name] = decision
	}
	found.DriverVersion = d.driverVersion(found.in)
	return found
}

// decideOwn decides about an operand that a node pool overrides, given the input of the node pool.
func (d *Decisions) decideOwn(o *operand.Operand, in operand.Input) operand.Decision {
	decision := decideOf(o, in)
	if decision.Choice == operand.Install {
		decision = in.CheckReferences(o)
	}
	if decision.Choice == operand.Install {
		if _, err := o.Instances(in, anySystem); err != nil {
			decision = operand.Refuse(v1.ReasonInvalidSpec, err.Error())
		}
	}
	return decision
}

// driverVersion returns the version of the driver in a spec; empty if it has none or an invalid image, which the
// decision about the driver reports.
func (d *Decisions) driverVersion(in operand.Input) string {
	for _, o := range d.Catalogue {
		if !o.PerPool || len(o.Images) == 0 || !*in.Spec.Driver.Enabled {
			continue
		}
		if ref, err := in.Images.Of(o.Images[0]).Resolve(in.Spec.Driver.ImageSpec, ""); err == nil {
			return ref.Version
		}
	}
	return ""
}

// nodePoolOf returns the node pool that the node belongs to, nil for none.
func (d *Decisions) nodePoolOf(node nodeinfo.Facts) *NodePool {
	if len(d.NodePools) == 0 {
		return nil
	}
	if at := operand.NodePoolOf(d.operandPools, node); at >= 0 {
		return &d.NodePools[at]
	}
	return nil
}

// inputForNodePool returns the input for the nodes of a node pool, or of none.
func (d *Decisions) inputForNodePool(nodePool *NodePool) operand.Input {
	if nodePool == nil {
		return d.Input
	}
	return nodePool.in
}

// inputForNode returns the input for a node.
func (d *Decisions) inputForNode(node nodeinfo.Facts) operand.Input {
	return d.inputForNodePool(d.nodePoolOf(node))
}

// nodePoolLabels returns the labels by which the DaemonSets of node pools select their nodes. A label with an empty
// value is to be removed. If an operand is refused for the node pool, the node keeps the label that it has.
func (d *Decisions) nodePoolLabels(nodePool *NodePool) map[string]string {
	desired := map[string]string{labels.NodePool: ""}
	if nodePool != nil {
		desired[labels.NodePool] = nodePool.Name
	}
	for i := range d.Catalogue {
		o := &d.Catalogue[i]
		key := o.NodePoolLabel()
		switch {
		case key == "":
		case nodePool == nil || !o.VariesIn(nodePool.NodePoolSpec):
			desired[key] = ""
		case d.decision(o, nodePool).Choice != operand.Refused:
			desired[key] = nodePool.Name
		}
	}
	return desired
}

// refusesDriver reports whether the driver is refused for the node: by its node pool or by an NVIDIADriver object, or
// because no such object or several select the node.
func (d *Decisions) refusesDriver(node nodeinfo.Facts) bool {
	if d.Input.UsesNVIDIADrivers() {
		owner := d.driverOf(node)
		return owner == nil || owner.Decision.Choice == operand.Refused
	}
	nodePool := d.nodePoolOf(node)
	return nodePool != nil && slices.ContainsFunc(d.Catalogue, func(o operand.Operand) bool {
		return o.PerPool && o.VariesIn(nodePool.NodePoolSpec) && d.decision(&o, nodePool).Choice == operand.Refused
	})
}
