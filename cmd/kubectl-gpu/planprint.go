package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/clusterpolicy/gpu-operator/internal/cli/preview"
)

// printPreview prints a preview in a format.
func printPreview(out io.Writer, p *preview.Preview, format string) error {
	var text []byte
	var err error
	if format == formatText {
		text, err = asText(p)
	} else {
		text, err = encode(p, format)
	}
	if err != nil {
		return fmt.Errorf("encoding the plan: %w", err)
	}
	if _, err := out.Write(text); err != nil {
		return fmt.Errorf("writing the plan: %w", err)
	}
	return nil
}

// asText returns a preview as people read it.
func asText(p *preview.Preview) ([]byte, error) {
	var text strings.Builder
	if p.Paused {
		fmt.Fprintf(&text, "spec.paused is true: the operator would only report. Without it:\n\n")
	}
	text.WriteString(headline(p) + "\n\n")
	if len(p.Notes) > 0 {
		text.WriteString("Notes:\n")
		for _, note := range p.Notes {
			fmt.Fprintf(&text, "  %s\n", note)
		}
		text.WriteString("\n")
	}
	if err := writeObjects(&text, p); err != nil {
		return nil, err
	}
	text.WriteString("\n")
	writeUpgrades(&text, &p.Upgrades)
	return []byte(text.String()), nil
}

func writeObjects(text *strings.Builder, p *preview.Preview) error {
	if len(p.Objects) == 0 {
		fmt.Fprintf(text, "Objects: all %d stay as they are.\n", p.Unchanged)
		return nil
	}
	fmt.Fprintf(text, "Objects: %d change, %d stay as they are.\n", len(p.Objects), p.Unchanged)
	table := tabwriter.NewWriter(text, 0, 0, 2, ' ', 0)
	for i := range p.Objects {
		c := &p.Objects[i]
		object := strings.TrimSpace(c.Kind + " " + c.Name)
		if object == "" {
			object = "operand " + c.Operand
		}
		row := fmt.Sprintf("  %s\t%s", c.Action, object)
		if text := explained(c); text != "" {
			row += "\t" + text
		}
		fmt.Fprintln(table, row)
	}
	return table.Flush()
}

// explained returns what a change means.
func explained(c *preview.Change) string {
	switch {
	case c.Message != "":
		return c.Message
	case c.RemovesPods():
		return fmt.Sprintf("%s removed", count(int(c.Running), "pod"))
	}
	var parts []string
	switch {
	case c.Action == preview.Delete && c.Pods != "":
		parts = append(parts, "its pods get another DaemonSet")
	case c.Action == preview.Create && len(c.Images) > 0:
		parts = append(parts, strings.Join(imagesOf(c.Images), ", "))
	case c.Action == preview.Update:
		parts = append(parts, c.Field+explainedImages(c.Images))
	}
	if c.Pods != "" {
		parts = append(parts, explainedPods(c))
	}
	if c.Later {
		parts = append(parts, laterText(c))
	}
	return strings.Join(parts, "; ")
}

// explainedPods returns what happens to the pods of a DaemonSet.
func explainedPods(c *preview.Change) string {
	running := count(int(c.Running), "pod")
	switch c.Pods {
	case preview.PodsRoll:
		return running + " replaced"
	case preview.PodsOutdated:
		return running + " outdated, see the upgrades"
	case preview.PodsStay:
	}
	return "the pods stay"
}

// imagesOf returns each image, or change of an image, once.
func imagesOf(changes []preview.ImageChange) []string {
	var found []string
	for _, c := range changes {
		change := c.After
		if c.Before != "" {
			change = c.Before + " -> " + c.After
		}
		if !slices.Contains(found, change) {
			found = append(found, change)
		}
	}
	return found
}

// explainedImages returns each change of an image once, in parentheses; empty for none.
func explainedImages(changes []preview.ImageChange) string {
	if len(changes) == 0 {
		return ""
	}
	return " (" + strings.Join(imagesOf(changes), ", ") + ")"
}

func writeUpgrades(text *strings.Builder, u *preview.Upgrades) {
	if len(u.Nodes) == 0 {
		text.WriteString("Driver upgrades: none.\n")
		return
	}
	if u.Happen() {
		fmt.Fprintf(text, "Driver upgrades: %s in %s.\n", count(len(u.Nodes)-u.Held(), "node"), count(u.Rounds(), "round"))
	}
	for round := 1; round <= u.Rounds(); round++ {
		fmt.Fprintf(text, "  Round %d\n", round)
		for i := range u.Nodes {
			if node := &u.Nodes[i]; node.Round == round {
				writeNode(text, "    ", node)
			}
		}
	}
	if u.Held() == 0 {
		return
	}
	fmt.Fprintf(text, "Held: %s with an outdated driver.\n", count(u.Held(), "node"))
	for i := range u.Nodes {
		if node := &u.Nodes[i]; node.Round == 0 {
			writeNode(text, "  ", node)
		}
	}
}

func writeNode(text *strings.Builder, indent string, node *preview.NodeUpgrade) {
	text.WriteString(indent + node.Name)
	if node.Cordoned {
		text.WriteString(" (cordoned by others, and stays so)")
	}
	if node.Reason != "" {
		fmt.Fprintf(text, ": %s", strings.TrimSuffix(node.Reason+": "+node.Message, ": "))
	}
	text.WriteString("\n")
	for _, pod := range node.Jobs {
		fmt.Fprintf(text, "%s  waits for %s\n", indent, pod)
	}
	for _, pod := range node.Evicted {
		fmt.Fprintf(text, "%s  evicts %s\n", indent, pod)
	}
	for _, pod := range node.Blocked {
		fmt.Fprintf(text, "%s  blocked: %s\n", indent, pod.Message)
	}
}

// count returns a number with its noun.
func count(number int, noun string) string {
	if number == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", number, noun)
}
