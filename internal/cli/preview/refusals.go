package preview

import (
	"fmt"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

// Invalid returns what the operator refuses until the policy or an NVIDIADriver object changes: operands with the state
// Invalid, node pools, NVIDIADriver objects, and the driver of nodes.
func Invalid(p plan.Plan, nodes []nodeinfo.Facts) []string {
	var names []string
	for _, step := range p.Steps {
		if step.State == v1.OperandInvalid {
			names = append(names, string(step.Operand.Name))
		}
	}
	for _, pool := range p.NodePools {
		if pool.Decision.Choice == operand.Refused {
			names = append(names, "node pool "+pool.Name)
		}
	}
	for _, driver := range p.RefusedDrivers() {
		names = append(names, "NVIDIADriver "+driver.Name)
	}
	if len(names) > 0 {
		// The nodes follow from these.
		return names
	}
	for _, refusal := range refusedNodes(p, nodes) {
		switch refusal.decision.Reason {
		case v1.ReasonConflictingNodeSelector, v1.ReasonInvalidSpec, v1.ReasonNotSupportedYet:
			names = append(names, "the driver on "+refusal.on())
		}
	}
	return names
}

// refusal is one reason for which nodes get no driver.
type refusal struct {
	decision operand.Decision
	// first of the nodes, and their number.
	first string
	nodes int
}

// on describes the nodes.
func (r *refusal) on() string {
	if r.nodes == 1 {
		return "node " + r.first
	}
	return fmt.Sprintf("%d nodes, such as %s", r.nodes, r.first)
}

// refusedNodes returns the reasons for which nodes get no driver, in the order of the nodes.
func refusedNodes(p plan.Plan, nodes []nodeinfo.Facts) []refusal {
	var found []refusal
	at := map[string]int{}
	for _, facts := range nodes {
		if !facts.TakesOperands() || facts.StandsIn {
			continue
		}
		node := p.ForNode(facts)
		driver, applies := p.Driver(&node)
		if !applies || driver.Expectation != plan.Refused {
			continue
		}
		i, seen := at[driver.Message]
		if !seen {
			i = len(found)
			at[driver.Message] = i
			found = append(found, refusal{decision: operand.Refuse(driver.Reason, driver.Message), first: facts.Name})
		}
		found[i].nodes++
	}
	return found
}

// RefusedDrivers returns a sentence for each node pool and NVIDIADriver object that is refused, with the reason.
func RefusedDrivers(p plan.Plan) []string {
	var sentences []string
	for _, pool := range p.NodePools {
		if pool.Decision.Choice != operand.Install {
			sentences = append(sentences,
				fmt.Sprintf("node pool %s would have no effect: %s (%s)", pool.Name, pool.Decision.Message, pool.Decision.Reason))
		}
	}
	for _, driver := range p.RefusedDrivers() {
		sentences = append(sentences, fmt.Sprintf("%s (%s)", driver.Decision.Message, driver.Decision.Reason))
	}
	return sentences
}

// notes returns a sentence for each operand that is held, for each node pool and NVIDIADriver object that is refused,
// and for nodes that get no driver, with the reason.
func notes(p plan.Plan, nodes []nodeinfo.Facts) []string {
	var sentences []string
	held := false
	for _, step := range p.Steps {
		if step.Action == plan.Hold {
			held = held || step.Operand.PerPool
			sentences = append(sentences, fmt.Sprintf("%s would stay unchanged: %s (%s)", step.Operand.Name, step.Message,
				step.Reason))
		}
	}
	sentences = append(sentences, RefusedDrivers(p)...)
	if held {
		return sentences
	}
	for _, refusal := range refusedNodes(p, nodes) {
		sentences = append(sentences, fmt.Sprintf("the driver would not be installed or changed on %s: %s (%s)", refusal.on(),
			refusal.decision.Message, refusal.decision.Reason))
	}
	return sentences
}
