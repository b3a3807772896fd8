package plan

import (
	"fmt"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// driverPool decides about the driver of the named NVIDIADriver object.
func (d *Decisions) driverPool(object string, pool operand.NodePool) NodePool {
	found := NodePool{
		NodePool:  pool,
		Decision:  pool.SelectorDecision,
		in:        d.Input.ForNodePool(pool),
		decisions: map[operand.Name]operand.Decision{},
	}
	for i := range d.Catalogue {
		o := &d.Catalogue[i]
		if !o.PerPool {
			continue
		}
		decision := pool.SelectorDecision
		if decision.Choice == operand.Install {
			decision = d.decideOwn(o, found.in)
		}
		if decision.Choice == operand.Refused {
			decision.Message = fmt.Sprintf("NVIDIADriver %s: %s", object, decision.Message)
			found.Decision = decision
		}
		found.decisions[o.Name] = decision
	}
	found.DriverVersion = d.driverVersion(found.in)
	return found
}

// poolsOf returns the pools that specify an operand: those of NVIDIADriver objects for the driver, if they are used,
// else the node pools.
func (d *Decisions) poolsOf(o *operand.Operand) []NodePool {
	if o.PerPool && d.Input.UsesNVIDIADrivers() {
		return d.driverObjects
	}
	return d.NodePools
}

// poolOf returns the one of poolsOf that the node belongs to, nil for none.
func (d *Decisions) poolOf(o *operand.Operand, node nodeinfo.Facts) *NodePool {
	if o.PerPool && d.Input.UsesNVIDIADrivers() {
		return d.driverOf(node)
	}
	return d.nodePoolOf(node)
}

// driverOf returns the NVIDIADriver object whose driver the node gets; nil if none selects it, or if several do.
func (d *Decisions) driverOf(node nodeinfo.Facts) *NodePool {
	if found := operand.NVIDIADriversOf(d.Input.NVIDIADrivers, node); len(found) == 1 {
		return &d.driverObjects[found[0]]
	}
	return nil
}

// ownerOf returns the name of the NVIDIADriver object whose driver the node gets; empty if there is none.
func (d *Decisions) ownerOf(node nodeinfo.Facts) string {
	if !d.Input.UsesNVIDIADrivers() {
		return ""
	}
	if found := operand.NVIDIADriversOf(d.Input.NVIDIADrivers, node); len(found) == 1 {
		return d.Input.NVIDIADrivers[found[0]].Name
	}
	return ""
}

// RefusedDriver returns the decision about the driver of an NVIDIADriver object: Refused if it is not installed.
func (d *Decisions) RefusedDriver(object string) operand.Decision {
	for i := range d.driverObjects {
		if d.Input.NVIDIADrivers[i].Name == object {
			return d.driverObjects[i].Decision
		}
	}
	return operand.Accept()
}

// DriverObject is an NVIDIADriver object with the decision about its driver.
type DriverObject struct {
	Name     string
	Decision operand.Decision
}

// RefusedDrivers returns the NVIDIADriver objects whose driver is refused. Their messages name them.
func (d *Decisions) RefusedDrivers() []DriverObject {
	var refused []DriverObject
	for i := range d.driverObjects {
		if decision := d.driverObjects[i].Decision; decision.Choice == operand.Refused {
			refused = append(refused, DriverObject{d.Input.NVIDIADrivers[i].Name, decision})
		}
	}
	return refused
}

// driverInput returns the input for the driver of a node.
func (d *Decisions) driverInput(node nodeinfo.Facts) operand.Input {
	if d.Input.UsesNVIDIADrivers() {
		return d.inputForNodePool(d.driverOf(node))
	}
	return d.inputForNode(node)
}

// checkDriverOwner refuses the driver on a node that no NVIDIADriver object selects, or several do, or one that cannot
// be used. The node keeps the driver that it has.
func (d *Decisions) checkDriverOwner(node nodeinfo.Facts) operand.Decision {
	if !d.Input.UsesNVIDIADrivers() {
		return operand.Accept()
	}
	switch found := operand.NVIDIADriversOf(d.Input.NVIDIADrivers, node); len(found) {
	case 0:
		return operand.Refuse(v1.ReasonNoNVIDIADriver,
			"no NVIDIADriver selects the node: change a nodeSelector, or create one with default: true")
	case 1:
		if decision := d.driverObjects[found[0]].Decision; decision.Choice == operand.Refused {
			return decision
		}
		return operand.Accept()
	default:
		return operand.Refuse(v1.ReasonConflictingNodeSelector,
			fmt.Sprintf("NVIDIADrivers %s and %s select the node: change one nodeSelector",
				d.Input.NVIDIADrivers[found[0]].Name, d.Input.NVIDIADrivers[found[1]].Name))
	}
}

// ownerLabel returns the label with the name of the NVIDIADriver object that the node belongs to; its value is empty if
// there is none. A node that several objects select keeps the label that it has.
func (d *Decisions) ownerLabel(node nodeinfo.Facts) map[string]string {
	owner := ""
	if d.Input.UsesNVIDIADrivers() {
		if d.Input.NVIDIADrivers == nil {
			return nil
		}
		switch found := operand.NVIDIADriversOf(d.Input.NVIDIADrivers, node); len(found) {
		case 0:
		case 1:
			owner = d.Input.NVIDIADrivers[found[0]].Name
		default:
			owner = node.Labels[labels.DriverOwner]
		}
	}
	return map[string]string{labels.DriverOwner: owner}
}
