package plan

import (
	"fmt"
	"slices"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// NodePool is what follows from the spec for a pool of spec.nodePools, independent of its nodes.
type NodePool struct {
	operand.NodePool
	// Refused is the reason why the pool is not applied to its nodes, if so.
	Refused operand.Decision
	// DriverVersion is the version of the nodes' driver in the spec, without the operating system; empty for none.
	DriverVersion string

	in operand.Input
	// decisions about the operands that the pool overrides; those about the others are in Decisions.
	decisions map[operand.Name]operand.Decision
}

// anySystem is a placeholder for the driver pools when only the spec is checked: an invalid image is invalid for every
// operating system.
var anySystem = []nodeinfo.Pool{{Name: "ubuntu24.04-amd64", OSTag: "ubuntu24.04"}}

// nodePool decides from the spec alone about the operands that a pool overrides.
func (d *Decisions) nodePool(pool operand.NodePool) NodePool {
	found := NodePool{
		NodePool:  pool,
		Refused:   pool.Refused,
		in:        d.Input.ForPool(pool),
		decisions: map[operand.Name]operand.Decision{},
	}
	for i := range d.Catalogue {
		o := &d.Catalogue[i]
		if !o.VariesIn(pool.NodePoolSpec) {
			continue
		}
		decision := o.Decide(found.in)
		if decision.Choice == operand.Install {
			decision = found.in.CheckReferences(o)
		}
		if decision.Choice == operand.Install {
			if _, err := o.Instances(found.in, anySystem); err != nil {
				decision = operand.Refused(v1.ReasonInvalidSpec, err.Error())
			}
		}
		if decision.Choice == operand.Invalid {
			decision.Message = fmt.Sprintf("node pool %s: %s", pool.Name, decision.Message)
			if found.Refused.Choice == operand.Install && d.decisions[o.Name].Choice != operand.Invalid {
				found.Refused = decision
			}
		}
		found.decisions[o.Name] = decision
	}
	found.DriverVersion = d.driverVersion(found.in)
	return found
}

// driverVersion returns the version of the driver in a spec; empty if it has none or an invalid image, which the
// decision about the driver reports.
func (d *Decisions) driverVersion(in operand.Input) string {
	for _, o := range d.Catalogue {
		if !o.PerPool || len(o.Images) == 0 || !*in.Spec.Driver.Enabled {
			continue
		}
		if ref, err := o.Images[0].Resolve(in.Spec.Driver.ImageSpec, ""); err == nil {
			return ref.Version
		}
	}
	return ""
}

// poolOf returns the pool that the node belongs to, nil for none.
func (d *Decisions) poolOf(node nodeinfo.Facts) *NodePool {
	if len(d.NodePools) == 0 {
		return nil
	}
	if at := operand.PoolOf(d.operandPools, node); at >= 0 {
		return &d.NodePools[at]
	}
	return nil
}

// inputFor returns the input for the nodes of a pool, or of none.
func (d *Decisions) inputFor(pool *NodePool) operand.Input {
	if pool == nil {
		return d.Input
	}
	return pool.in
}

// inputOf returns the input for a node.
func (d *Decisions) inputOf(node nodeinfo.Facts) operand.Input { return d.inputFor(d.poolOf(node)) }

// poolLabels returns the labels by which the DaemonSets of pools select their nodes. A label with an empty value is to
// be removed. If the pool is invalid for an operand, the node keeps the label that it has.
func (d *Decisions) poolLabels(pool *NodePool) map[string]string {
	desired := map[string]string{labels.NodePool: ""}
	if pool != nil {
		desired[labels.NodePool] = pool.Name
	}
	for i := range d.Catalogue {
		o := &d.Catalogue[i]
		key := o.NodePoolLabel()
		switch {
		case key == "":
		case pool == nil || !o.VariesIn(pool.NodePoolSpec):
			desired[key] = ""
		case d.decision(o, pool).Choice != operand.Invalid:
			desired[key] = pool.Name
		}
	}
	return desired
}

// refusesDriver reports whether the pool specifies an invalid driver.
func (d *Decisions) refusesDriver(pool *NodePool) bool {
	return pool != nil && slices.ContainsFunc(d.Catalogue, func(o operand.Operand) bool {
		return o.PerPool && o.VariesIn(pool.NodePoolSpec) && d.decision(&o, pool).Choice == operand.Invalid
	})
}
