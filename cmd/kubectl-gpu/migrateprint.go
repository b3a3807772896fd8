package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/clusterpolicy/gpu-operator/internal/cli/migrationsteps"
	"github.com/clusterpolicy/gpu-operator/internal/removal/cleanup"
)

// stepTexts are what steps do.
var stepTexts = map[migrationsteps.Action]string{
	migrationsteps.ActionKeep:    "keep %s when Helm upgrades its release",
	migrationsteps.ActionRelease: "remove Helm's annotations from %s",
	migrationsteps.ActionStop:    "stop %s and wait until its pods have ended",
	migrationsteps.ActionDisown:  "make %s independent of the ClusterPolicy",
	migrationsteps.ActionDelete:  "delete %s",
	migrationsteps.ActionEnd:     "delete %s and wait until its pods have ended",
	migrationsteps.ActionUnhold:  "remove this operator's finalizer from %s",
	migrationsteps.ActionSelect:  "label %s so that the DaemonSets of NVIDIA's operator select it",
	migrationsteps.ActionOrphan:  "delete %s without its pods",
	migrationsteps.ActionMove:    "label %s so that the DaemonSet of NVIDIA's operator adopts it",
	migrationsteps.ActionCreate:  "create %s as NVIDIA's operator has it, which adopts the pods",
	migrationsteps.ActionUnmark:  "remove what this operator has written on %s",

	migrationsteps.ActionDeleteAll:    "delete all of %s",
	migrationsteps.ActionRecordLayout: "record on %s that NVIDIA's operator has set nvidia.com/mig.config",
	migrationsteps.ActionHandOver:     "hand over the labels of %s from Node Feature Discovery to node-discovery",
	migrationsteps.ActionAwaitLabels:  "wait until node-discovery has taken over the labels of %s",
	migrationsteps.ActionRemoveLabels: "remove labels that only Node Feature Discovery writes from %s",
}

func stepText(step *migrationsteps.Step) string {
	if len(step.Nodes) > 0 {
		return fmt.Sprintf(stepTexts[step.Action], count(len(step.Nodes), "node"))
	}
	return fmt.Sprintf(stepTexts[step.Action], step.Object)
}

// writeReport prints a report in a format; asText is the report as people read it.
func writeReport(out io.Writer, report *migrationsteps.Report, asText, format string) error {
	text := []byte(asText)
	if format == formatJSON {
		var err error
		if text, err = json.MarshalIndent(report, "", "  "); err != nil {
			return fmt.Errorf("encoding the report: %w", err)
		}
		text = append(text, '\n')
	}
	if _, err := out.Write(text); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

// reportText returns a report on a migration as people read it.
func reportText(r *migrationsteps.Report) string {
	return sections(r, "NVIDIA's operator", "Before the installation, kubectl gpu migrate would", "Notes on the policy",
		"Afterwards, kubectl gpu migrate --finish would")
}

// backText returns a report on the way back as people read it.
func backText(r *migrationsteps.Report) string {
	return sections(r, "This operator", "Before NVIDIA's operator is installed, kubectl gpu migrate --back would", "Notes",
		"Afterwards, kubectl gpu migrate --back --finish would")
}

// sections has the parts of a report under headings, after the operator that is left.
func sections(r *migrationsteps.Report, operator, stop, notes, finish string) string {
	var text strings.Builder
	if len(r.Operators) == 0 {
		text.WriteString(operator + " has no Deployment in the cluster.\n")
	}
	for i := range r.Operators {
		text.WriteString(operator + ": " + operatorText(&r.Operators[i]))
	}
	fmt.Fprintf(&text, "ClusterPolicy: %s, %s\n", r.Policy, count(r.Nodes, "GPU node"))
	section(&text, "NVIDIADriver objects", r.Drivers, func(name string) string { return name })
	section(&text, "Blocked", r.Blockers, blockerText)
	step := func(s migrationsteps.Step) string { return stepText(&s) }
	section(&text, stop, r.Stop, step)
	section(&text, "Pods of operands", r.Operands, operandText)
	section(&text, notes, r.Notes, func(note string) string { return note })
	section(&text, finish, r.Finish, step)
	section(&text, "Objects of Node Feature Discovery that stay without --node-discovery", r.Discovery,
		cleanup.Object.String)
	return text.String()
}

// operatorText returns the line of an operator.
func operatorText(o *migrationsteps.Operator) string {
	line := fmt.Sprintf("Deployment %s in namespace %s, image %s, installed with %s", o.Deployment, o.Namespace, o.Image,
		o.Way)
	if o.Release != nil {
		line += " as release " + o.Release.Name
	}
	return line + "\n"
}

func blockerText(b migrationsteps.Blocker) string { return b.Cause + ": " + b.Remedy }

func operandText(o migrationsteps.Operand) string {
	line := fmt.Sprintf("%s: %s %s", o.DaemonSet, count(int(o.Pods), "pod"), o.Effect)
	if o.Because != "" {
		line += " (" + o.Because + ")"
	}
	return line
}

// section writes a heading and a line for each item, unless there is none.
func section[T any](text *strings.Builder, heading string, items []T, line func(T) string) {
	if len(items) == 0 {
		return
	}
	fmt.Fprintf(text, "%s:\n", heading)
	for _, item := range items {
		fmt.Fprintf(text, "  %s\n", line(item))
	}
}
