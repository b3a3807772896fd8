package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/clusterpolicy/gpu-operator/internal/cli/explain"
	"github.com/clusterpolicy/gpu-operator/internal/cli/overview"
	"github.com/clusterpolicy/gpu-operator/internal/names/text"
)

// maxNamed is how many nodes a finding names in the text.
const maxNamed = 5

// nodeText returns an explanation as people read it.
func nodeText(n *explain.Node) string {
	text := &strings.Builder{}
	fmt.Fprintf(text, "Node %s: %s", n.Name, readyText[n.Ready])
	if n.GPUs.Total > 0 {
		fmt.Fprintf(text, ", %d of %d GPUs usable", n.GPUs.Usable, n.GPUs.Total)
	}
	text.WriteString("\n\n")
	var lines []string
	for _, stage := range n.Stages {
		state := "-"
		switch {
		case stage.Reached:
			state = "reached"
		case stage.Off:
			state = "off"
		case stage.Name == n.Stage:
			state = "not reached: " + n.Reason
		}
		lines = append(lines, fmt.Sprintf("  %s\t%s", stage.Name, state))
	}
	writeAligned(text, lines...)
	none := "Nothing is reported."
	if n.Ready == overview.Ready && n.Message != "" {
		// It may say more than that GPUs can be used, such as whose device plugin offers them.
		none = "Nothing keeps pods from its GPUs: " + n.Message + "."
	}
	writeFindings(text, n.Findings, none)
	if len(n.Pods) == 0 {
		return text.String()
	}
	text.WriteString("\nPods of the operator on the node:\n")
	lines = nil
	for _, pod := range n.Pods {
		ready := "not ready"
		if pod.Ready {
			ready = "ready"
		}
		lines = append(lines, fmt.Sprintf("  %s\t%s\t%s", pod.Name, ready, pod.State))
	}
	writeAligned(text, lines...)
	return text.String()
}

// readyText is the readiness of a node in words.
var readyText = map[overview.Readiness]string{
	overview.Ready: "ready", overview.NotReady: "not ready", overview.Unknown: "not reported",
	overview.Excluded: "excluded",
}

// podText returns an explanation as people read it.
func podText(p *explain.Pod) string {
	text := &strings.Builder{}
	fmt.Fprintf(text, "Pod %s/%s: %s", p.Namespace, p.Name, p.State)
	if p.Node != "" {
		fmt.Fprintf(text, " on node %s", p.Node)
	}
	for _, name := range slices.Sorted(maps.Keys(p.Requests)) {
		fmt.Fprintf(text, ", requests %d %s", p.Requests[name], name)
	}
	if len(p.Claims) > 0 {
		fmt.Fprintf(text, ", has resource claims: %s", named(p.Claims))
	}
	text.WriteString("\n")
	writeFindings(text, p.Findings, "Nothing keeps it from its GPU.")
	return text.String()
}

func writeFindings(text *strings.Builder, findings []explain.Finding, none string) {
	if len(findings) == 0 {
		fmt.Fprintf(text, "\n%s\n", none)
	}
	for _, f := range findings {
		fmt.Fprintf(text, "\n%s: %s\n", f.Reason, f.Message)
		if f.Cause != "" {
			fmt.Fprintf(text, "  Cause: %s\n", f.Cause)
		}
		fmt.Fprintf(text, "  Next:  %s\n", f.Next)
		for _, command := range f.Commands {
			fmt.Fprintf(text, "  Run:   %s\n", command)
		}
		if f.Log != nil {
			writeLog(text, f.Log.Lines)
		}
		if len(f.Nodes) > 0 {
			fmt.Fprintf(text, "  Nodes: %s\n", named(f.Nodes))
		}
	}
}

// writeLog writes the last lines of a log.
func writeLog(text *strings.Builder, lines []string) {
	title := "Log:"
	for _, line := range lines {
		fmt.Fprintf(text, "  %-6s %s\n", title, line)
		title = ""
	}
}

// named lists the first names and counts the others.
func named(names []string) string { return text.Named(names, maxNamed) }
