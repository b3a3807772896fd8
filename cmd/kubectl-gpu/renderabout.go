package main

import (
	"fmt"

	"github.com/clusterpolicy/gpu-operator/internal/cli/preview"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

// aboutPause returns a line if the operator would apply nothing.
func aboutPause(paused bool) []string {
	if !paused {
		return nil
	}
	return []string{"spec.paused is true: the operator would only report. Without it, it would apply these objects"}
}

// aboutOperands returns a line for each operand that would not be applied and each node pool and NVIDIADriver that is
// refused, with the reason.
func aboutOperands(p plan.Plan) []string {
	var sentences []string
	for _, step := range p.Steps {
		switch step.Action {
		case plan.Remove:
			sentences = append(sentences, fmt.Sprintf(
				"%s would not be installed, and an installed one would be removed: %s (%s)",
				step.Operand.Name, step.Message, step.State))
		case plan.Hold:
			sentences = append(sentences, fmt.Sprintf(
				"%s would not be applied, and an installed one would stay unchanged: %s (%s, %s)",
				step.Operand.Name, step.Message, step.State, step.Reason))
		case plan.Apply:
		}
	}
	return append(sentences, preview.RefusedDrivers(p)...)
}

// aboutNodes returns a line for each GPU node and operand that would be installed but not run on that node.
func aboutNodes(p plan.Plan, nodes []nodeinfo.Facts) []string {
	held := map[operand.Name]bool{}
	for _, step := range p.Steps {
		held[step.Operand.Name] = step.Action == plan.Hold
	}
	var sentences []string
	for _, facts := range nodes {
		if !facts.Managed() {
			continue
		}
		if facts.ExcludedByLabel {
			sentences = append(sentences,
				fmt.Sprintf("node %s would run no operand: label %s is %q", facts.Name, labels.DeployOperands, labels.False))
			continue
		}
		node := p.ForNode(facts)
		if node.Decision.Choice != operand.Install {
			sentences = append(sentences, fmt.Sprintf("node %s would run no operand: %s", facts.Name, node.Decision.Message))
			continue
		}
		for _, onNode := range append(node.Essential, node.Auxiliary...) {
			if why := whyNot(onNode); why != "" && !held[onNode.Operand] {
				sentences = append(sentences, fmt.Sprintf("node %s would not run %s: %s", facts.Name, onNode.Operand, why))
			}
		}
	}
	return sentences
}

// whyNot returns why an operand does not run on its node; empty if it does.
func whyNot(onNode plan.OperandOnNode) string {
	switch onNode.Expectation {
	case plan.HostProvides:
		return "the host provides it"
	case plan.OptedOut, plan.PausedByLabel, plan.Refused:
		return fmt.Sprintf("%s (%s)", onNode.Message, onNode.Reason)
	case plan.Expected:
	}
	return ""
}
