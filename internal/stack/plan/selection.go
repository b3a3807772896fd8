package plan

import (
	"fmt"
	"slices"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// checkNodeSelector decides whether the spec selects the node for the operand. A node retains its driver: a
// flapping label must not remove it from under running GPU work, so the selector only applies to nodes without a
// driver. A node that stands in has no labels; those to come may have the selected ones.
func (d *Decisions) checkNodeSelector(o operand.Operand, node nodeinfo.Facts) operand.Decision {
	if node.StandsIn || o.Retains(node) || d.missingLabelsFor(o, node) != "" {
		return operand.Accept()
	}
	return d.selectorInput(&o, node).Selects(&o, node)
}

// selectorInput returns the input whose nodeSelectors apply to the operand: not that of spec.driver if an NVIDIADriver
// object declares the driver of the node.
func (d *Decisions) selectorInput(o *operand.Operand, node nodeinfo.Facts) operand.Input {
	if o.PerPool && d.Input.UsesNVIDIADrivers() {
		return d.driverInput(node)
	}
	return d.Input
}

// missingLabelsFor describes the discovery labels that are temporarily missing on a node with the operand, which stays
// meanwhile although a selector may require them. Empty if there are none.
func (d *Decisions) missingLabelsFor(o operand.Operand, node nodeinfo.Facts) string {
	if node.Deploy[string(o.Name)] != labels.True {
		return ""
	}
	if missing := node.DescribeMissingLabels(); missing != "" {
		return missing
	}
	if key := d.selectorInput(&o, node).MissingSelectorLabel(&o, node); key != "" && !node.SelectorLabelGraceOver {
		return fmt.Sprintf("no label %s, which %s requires,", key, o.Name)
	}
	return ""
}

// DescribeMissingLabels describes the discovery labels that are missing on a node which had them; empty if there are
// none.
func (d *Decisions) DescribeMissingLabels(node nodeinfo.Facts) string {
	if missing := node.DescribeMissingLabels(); missing != "" {
		return missing
	}
	for _, o := range d.Catalogue {
		if d.decisions[o.Name].Choice != operand.Install || node.ExcludedByLabel {
			continue
		}
		if missing := d.missingLabelsFor(o, node); missing != "" {
			return missing
		}
	}
	return ""
}

// retainedDriver describes how to remove an operand that the node retains although no selector selects it; empty if
// there is none.
func (d *Decisions) retainedDriver(node nodeinfo.Facts) string {
	for _, o := range d.Catalogue {
		if d.missingLabelsFor(o, node) != "" || d.decisions[o.Name].Choice != operand.Install || !o.Retains(node) ||
			node.Deploy[string(o.Name)] != labels.True {
			continue
		}
		if selected := d.selectorInput(&o, node).Selects(&o, node); selected.Choice != operand.Install {
			// The command comes first, as a long message is truncated in the policy's status.
			return fmt.Sprintf("run kubectl label node %s %s- to remove the %s: %s",
				node.Name, o.Name.DeployLabel(), o.Name, selected.Message)
		}
	}
	return ""
}

// filterDriverNodes filters, in place, the nodes that an operand with an instance per driver pool is selected for.
func (p Plan) filterDriverNodes(nodes []nodeinfo.Facts) []nodeinfo.Facts {
	drivers := slices.DeleteFunc(slices.Clone(p.Catalogue), func(o operand.Operand) bool { return !o.PerPool })
	return slices.DeleteFunc(nodes, func(node nodeinfo.Facts) bool {
		for i := range drivers {
			// A node without a driver gets none while no NVIDIADriver object that can be used, or several, select it.
			owned := node.Pool != "" || p.checkDriverOwner(node).Choice == operand.Install
			if owned && p.checkNodeSelector(drivers[i], node).Choice == operand.Install {
				return false
			}
		}
		return true
	})
}

// notNeededStep returns the step for an operand that no node is to run: Waiting if a node needs the driver and
// NVIDIADriver objects declare none for it.
func (p Plan) notNeededStep(o operand.Operand, nodes []nodeinfo.Facts) Step {
	step := Step{
		Operand: o, Action: Remove, State: v1.OperandNotNeeded,
		Reason: string(v1.OperandNotNeeded), Message: "no node needs it",
	}
	for _, node := range nodes {
		if !node.TakesOperands() {
			continue
		}
		found := operandOnNode(o, p.checkFacts(o, node), node)
		if found.Undeclared() {
			step.State, step.Reason = v1.OperandWaiting, found.Reason
			step.Message = fmt.Sprintf("no node gets it: %s: %s", node.Name, found.Message)
			return step
		}
		if found.Expectation == Refused || step.Reason == v1.ReasonNotSelected {
			continue
		}
		if selected := p.checkNodeSelector(o, node); selected.Choice != operand.Install {
			step.Reason, step.Message = selected.Reason, "no GPU node is selected: "+selected.Message
		}
	}
	return step
}

// evaluateSelection sets NeedsAllocatable, and Unselected if a nodeSelector excludes all stages from the node. What
// keeps the device plugin off the node, be it the spec, a nodeSelector or a label, makes no difference: GPUs that
// nothing offers cannot be used.
func (n *NodePlan) evaluateSelection() {
	selected := func(r OperandOnNode) bool { return r.Reason != v1.ReasonNotSelected }
	n.NeedsAllocatable = slices.ContainsFunc(
		n.Essential,
		func(r OperandOnNode) bool { return r.Stage == v1.StageValidated && selected(r) },
	)
	for _, r := range n.Essential {
		switch {
		case !selected(r):
			n.Unselected = r.Message
		case r.Expectation != HostProvides:
			n.Unselected = ""
			return
		}
	}
}
