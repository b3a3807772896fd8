package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/clusterpolicy/gpu-operator/internal/removal/cleanup"
)

// cleanupText returns a plan as people read it.
func cleanupText(plan *cleanup.Plan) string {
	var text strings.Builder
	writeBusy(&text, plan.Busy)
	if len(plan.Policies) > 0 {
		text.WriteString("Delete the ClusterPolicies:\n")
		for i := range plan.Policies {
			text.WriteString("  " + policyLine(&plan.Policies[i]) + "\n")
		}
	}
	if len(plan.DaemonSets) > 0 {
		text.WriteString("Delete the operands, each line once the pods of the one before are gone:\n")
		for _, group := range plan.DaemonSets {
			text.WriteString("  " + joined(group, cleanup.Object.String) + "\n")
		}
	}
	if len(plan.Others) > 0 {
		text.WriteString("Delete the other objects:\n")
		for _, object := range plan.Others {
			text.WriteString("  " + object.String() + "\n")
		}
	}
	writeReleased(&text, plan.Nodes)
	if len(plan.Namespaces) > 0 {
		text.WriteString("Reset the Pod Security labels of the namespaces:\n")
		for i := range plan.Namespaces {
			text.WriteString("  " + namespaceLine(&plan.Namespaces[i]) + "\n")
		}
	}
	return text.String()
}

func writeBusy(text *strings.Builder, busy []cleanup.BusyNode) {
	if len(busy) == 0 {
		return
	}
	text.WriteString("These pods may use GPUs:\n")
	for _, node := range busy {
		fmt.Fprintf(text, "  %s: %s\n", node.Name, strings.Join(node.Pods, ", "))
	}
}

func policyLine(policy *cleanup.Policy) string {
	line := policy.Name
	if policy.Terminating {
		line += " (terminating)"
	}
	if len(policy.Finalizers) > 0 {
		line += ", which then waits for the finalizers of others: " + strings.Join(policy.Finalizers, ", ")
	}
	return line
}

func namespaceLine(namespace *cleanup.Namespace) string {
	var restored []string
	for _, key := range slices.Sorted(maps.Keys(namespace.Restored)) {
		restored = append(restored, key+"="+namespace.Restored[key])
	}
	if len(restored) == 0 {
		return namespace.Name
	}
	return namespace.Name + ": back to " + strings.Join(restored, ", ")
}

// writeReleased writes what is removed from nodes; those from which the same is removed together.
func writeReleased(text *strings.Builder, nodes []cleanup.Node) {
	if len(nodes) == 0 {
		return
	}
	text.WriteString("Remove from nodes:\n")
	names := map[string][]string{}
	var order []string
	for i := range nodes {
		changes := removalLines(&nodes[i])
		if names[changes] == nil {
			order = append(order, changes)
		}
		names[changes] = append(names[changes], nodes[i].Name)
	}
	for _, changes := range order {
		fmt.Fprintf(text, "  %s\n%s", strings.Join(names[changes], ", "), changes)
	}
}

func removalLines(node *cleanup.Node) string {
	var lines strings.Builder
	write := func(what string, names []string) {
		if len(names) > 0 {
			fmt.Fprintf(&lines, "    %s %s\n", what, strings.Join(names, ", "))
		}
	}
	removal := node.Removal
	write("labels", slices.Sorted(maps.Keys(removal.Labels)))
	write("annotations", slices.Sorted(maps.Keys(removal.Annotations)))
	var taints []string
	for _, taint := range removal.Taints {
		taints = append(taints, taint.Key+":"+string(taint.Effect))
	}
	write("taints", taints)
	write("condition", removal.Conditions)
	if removal.Uncordon {
		write("cordon", []string{"of the driver upgrade"})
	}
	return lines.String()
}

// joined returns the texts of a list, separated by commas.
func joined[T any](list []T, of func(T) string) string {
	texts := make([]string, 0, len(list))
	for _, item := range list {
		texts = append(texts, of(item))
	}
	return strings.Join(texts, ", ")
}
