package plan

import (
	"fmt"
	"slices"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// selects tells whether the spec selects the node for the operand. A node that has the driver keeps it: a
// label that flaps must take it from no running work, so the selector decides about nodes that have none yet.
func (d *Decisions) selects(o operand.Operand, node nodeinfo.Facts) operand.Decision {
	if o.Retains(node) || d.missingLabelsFor(o, node) != "" {
		return operand.Installed()
	}
	return d.Input.Selects(&o, node)
}

// missingLabelsFor tells which labels of discovery are away from a node that has the operand, as long as they may be back
// in a moment: the operand stays for that time, though a selector asks for them. Empty if there are none.
func (d *Decisions) missingLabelsFor(o operand.Operand, node nodeinfo.Facts) string {
	if node.Deploy[string(o.Name)] != labels.True {
		return ""
	}
	if missing := node.MissingLabels(); missing != "" {
		return missing
	}
	if key := d.Input.MissingSelectorLabel(&o, node); key != "" && !node.SelectorLabelExpired {
		return fmt.Sprintf("no %s for %s", key, o.Name)
	}
	return ""
}

// MissingLabels tells which labels of discovery are away from a node that had them, in words; empty if there are none.
func (d *Decisions) MissingLabels(node nodeinfo.Facts) string {
	if missing := node.MissingLabels(); missing != "" {
		return missing
	}
	for _, o := range d.Catalogue {
		if d.decisions[o.Name].Choice != operand.Install || node.Excluded {
			continue
		}
		if missing := d.missingLabelsFor(o, node); missing != "" {
			return missing
		}
	}
	return ""
}

// retainedDriver tells why a node is to lose an operand that it keeps, and how; empty if there is none.
func (d *Decisions) retainedDriver(node nodeinfo.Facts) string {
	for _, o := range d.Catalogue {
		if d.missingLabelsFor(o, node) != "" || d.decisions[o.Name].Choice != operand.Install || !o.Retains(node) ||
			node.Deploy[string(o.Name)] != labels.True {
			continue
		}
		if selected := d.Input.Selects(&o, node); selected.Choice != operand.Install {
			// The command comes first, as a long message is cut in the policy's status.
			return fmt.Sprintf("run kubectl label node %s %s- to take the %s off: %s", node.Name, o.Name.DeployLabel(), o.Name, selected.Message)
		}
	}
	return ""
}

// driverNodes keeps, in place, the nodes that an operand which has an instance for each pool is to serve.
func (p Plan) driverNodes(nodes []nodeinfo.Facts) []nodeinfo.Facts {
	drivers := slices.DeleteFunc(slices.Clone(p.Catalogue), func(o operand.Operand) bool { return !o.PerPool })
	return slices.DeleteFunc(nodes, func(node nodeinfo.Facts) bool {
		for i := range drivers {
			if p.selects(drivers[i], node).Choice == operand.Install {
				return false
			}
		}
		return true
	})
}

// notNeeded tells why no node needs the operand.
func (p Plan) notNeeded(o operand.Operand, nodes []nodeinfo.Facts) (reason, message string) {
	for _, node := range nodes {
		if !node.Managed() || node.Excluded || p.canServe(o, node).Choice != operand.Install {
			continue
		}
		if selected := p.selects(o, node); selected.Choice != operand.Install {
			return selected.Reason, "no GPU node is selected: " + selected.Message
		}
	}
	return string(v1.OperandNotNeeded), "no node needs it"
}

// checkSelection notes where a nodeSelector keeps the whole ladder off the node, and where not even a part
// of it makes GPUs allocatable.
func (n *Node) checkSelection() {
	selected := func(r NodeStage) bool { return r.Reason != v1.ReasonNotSelected }
	n.NeedsAllocatable = slices.ContainsFunc(n.Stages, func(r NodeStage) bool { return r.Stage == v1.StageDevicePlugin && selected(r) })
	for _, r := range n.Stages {
		switch {
		case !selected(r):
			n.Unselected = r.Message
		case r.Expectation != HostProvides:
			n.Unselected = ""
			return
		}
	}
}
