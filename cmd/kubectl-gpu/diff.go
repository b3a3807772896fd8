package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/clusterpolicy/gpu-operator/internal/cli/preview"
	"github.com/clusterpolicy/gpu-operator/internal/kube/drift"
)

// errDiffers makes the plugin exit with exitDiffers. It is not printed.
var errDiffers = errors.New("the operator would change something")

func diffCommand() *cobra.Command {
	o := planOptions{}
	command := &cobra.Command{
		Use:   "diff -f POLICY",
		Short: "Show field by field what the operator would change if the policy were applied, without writing",
		Long: `Show what the operator would change on the cluster if the ClusterPolicy in a file replaced the one in it: the
fields of the policy, the objects that are created, changed and deleted with each field before (-) and after (+), the
pods that are replaced and on how many nodes, and the upgrades of drivers. Nothing is written.

kubectl gpu plan has the same in short, with the order of the upgrades and the pods that are evicted. The file has the
complete spec, and the same rights are needed: see kubectl gpu plan --help. Of fields that are no longer set, those are
shown that are elements of a list with names, such as variables, or keys of a map, such as node selectors.

Exit codes, as of kubectl diff: 0 neither the policy nor an object would change, 1 something would, 2 failure, an
invalid policy or wrong usage.`,
		Example: `  kubectl gpu diff -f policy.yaml
  kubectl gpu diff -f policy.yaml -o json
  kubectl gpu diff -f policy.yaml > /dev/null && echo nothing changes`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.policy == stdin && o.against == stdin {
				return errors.New("the policy and the objects cannot both come from standard input: give one of them as a file")
			}
			if err := oneOf("output", o.output, formats); err != nil {
				return err
			}
			found, err := o.compute(cmd)
			if err == nil {
				err = o.printDiff(cmd.OutOrStdout(), found)
			}
			switch {
			case err != nil:
				return coded{failure{err}, exitUsage}
			case found.Differs():
				return errDiffers
			}
			return nil
		},
	}
	o.addFlags(command)
	command.Flags().Lookup("filename").Usage = "file with the ClusterPolicy; - reads standard input"
	requireFlags(command, "filename")
	return command
}

// printDiff prints the changes. It fails if the operator would refuse a part of the policy, or could not write an
// object.
func (o planOptions) printDiff(out io.Writer, found *preview.Preview) error {
	text := []byte(diffText(found, newPalette(out)))
	if o.output != formatText {
		var err error
		if text, err = encode(found, o.output); err != nil {
			return fmt.Errorf("encoding the differences: %w", err)
		}
	}
	if _, err := out.Write(text); err != nil {
		return fmt.Errorf("writing the differences: %w", err)
	}
	return errRefused(found)
}

// diffText returns the changes as people read them.
func diffText(p *preview.Preview, colours palette) string {
	text := &strings.Builder{}
	if p.Paused {
		text.WriteString("spec.paused is true: the operator would only report. Without it:\n\n")
	}
	text.WriteString(headline(p) + "\n\n")
	for _, note := range p.Notes {
		fmt.Fprintf(text, "note: %s\n", note)
	}
	if len(p.Spec) > 0 {
		fmt.Fprintf(text, "%s\n", colours.bold("ClusterPolicy "+p.Policy))
		writeDifferences(text, p.Spec, colours)
	}
	for i := range p.Objects {
		c := &p.Objects[i]
		title := strings.TrimSpace(fmt.Sprintf("%s %s %s", c.Action, c.Kind, c.Name))
		if c.Operand != "" {
			title += " (" + c.Operand + ")"
		}
		fmt.Fprintf(text, "%s%s\n", colours.bold(title), effectText(c))
		writeDifferences(text, c.Differences, colours)
	}
	if len(p.Spec)+len(p.Objects) > 0 {
		text.WriteString("\n")
	}
	if len(p.Objects) == 0 && !p.Upgrades.Happen() {
		fmt.Fprintf(text, "The operator would change no object: %s.\n", unchanged(p))
		return text.String()
	}
	fmt.Fprintf(text, "%s, %d stay as they are. %s replaced or removed on %s. Driver upgrades on %s.\n",
		count(len(p.Objects), "changed object"), p.Unchanged, count(p.Replaced.Pods, "pod"), count(p.Replaced.Nodes, "node"),
		count(len(p.Upgrades.Nodes)-p.Upgrades.Held(), "node"))
	return text.String()
}

// unchanged returns how many objects stay.
func unchanged(p *preview.Preview) string {
	if p.Unchanged == 1 {
		return "the only one stays as it is"
	}
	return fmt.Sprintf("all %d stay as they are", p.Unchanged)
}

// effectText returns what a change means for pods.
func effectText(c *preview.Change) string {
	switch {
	case c.Message != "":
		return ": " + c.Message
	case c.Later:
		return ": " + laterText(c)
	case c.Pods == preview.PodsRoll:
		return fmt.Sprintf(": %s replaced", count(int(c.Running), "pod"))
	case c.Pods == preview.PodsOutdated:
		return fmt.Sprintf(": %s outdated, replaced by driver upgrades", count(int(c.Running), "pod"))
	case c.Pods == preview.PodsStay:
		return ": the pods stay"
	case c.Action == preview.Delete && c.Kind == "DaemonSet":
		return fmt.Sprintf(": %s removed", count(int(c.Running), "pod"))
	}
	return ""
}

// laterText returns when a change of a driver DaemonSet happens that does not follow the edit at once.
func laterText(c *preview.Change) string {
	if c.Action == preview.Delete {
		return "when the last node is moved from it"
	}
	return "when the first node is moved to it"
}

func writeDifferences(text *strings.Builder, all []drift.Difference, colours palette) {
	for _, d := range all {
		if d.Before != nil {
			fmt.Fprintln(text, colours.red("  - "+d.Path+": "+compact(d.Before)))
		}
		if d.After != nil {
			fmt.Fprintln(text, colours.green("  + "+d.Path+": "+compact(d.After)))
		}
	}
}

// compact returns a value as JSON in one line.
func compact(value any) string {
	text := &strings.Builder{}
	encoder := json.NewEncoder(text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return fmt.Sprint(value)
	}
	return strings.TrimSpace(text.String())
}
