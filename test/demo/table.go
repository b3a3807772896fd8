package main

import (
	"fmt"
	"strings"

	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
)

// The symbols for the state of a stage.
const (
	markReached   = "✓"
	markWorking   = "…"
	markFailed    = "✗"
	markUntouched = "·"
)

// colours of the marks on a terminal, as SGR codes.
var colours = map[string]string{markReached: "32", markWorking: "33", markFailed: "31", markUntouched: "2"}

// style is the format of the table.
type style struct {
	// rows is the maximum number of nodes.
	rows int
	// width is the maximum length of lines; 0: unlimited.
	width int
	// colour enables colours.
	colour bool
}

// table draws the nodes, one line each, under a heading.
func table(f frame, s style) []string {
	shown := f.worst(s.rows)
	nameWidth := len("NODE")
	for _, r := range shown {
		nameWidth = max(nameWidth, len(r.name))
	}
	heading := pad("NODE", nameWidth)
	for _, stage := range stages {
		heading += "  " + string(stage)
	}
	lines := []string{cut(heading+"  OPERATOR STATUS", s.width)}
	// The columns before the last one have the same width in each line, not counting colour codes.
	left := len(heading) + len("  ")
	for _, r := range shown {
		line := pad(r.name, nameWidth)
		for i, stage := range stages {
			line += "  " + paint(r.mark(i), len(stage), s.colour)
		}
		if s.width == 0 || s.width > left {
			line += "  " + cut(r.word(), max(0, s.width-left))
		}
		lines = append(lines, line)
	}
	if hidden := len(f.rows) - len(shown); hidden > 0 {
		lines = append(lines, fmt.Sprintf("and %d more nodes, no worse than these", hidden))
	}
	return lines
}

// mark returns the symbol for a node and a stage.
func (r row) mark(stage int) string {
	switch reached := r.reached(); {
	case stage < reached:
		return markReached
	case stage > reached:
		return markUntouched
	case r.verdict.State == readiness.Failed:
		return markFailed
	default:
		return markWorking
	}
}

func paint(mark string, width int, colour bool) string {
	padded := pad(mark, width)
	if !colour {
		return padded
	}
	return "\x1b[" + colours[mark] + "m" + padded + "\x1b[0m"
}

func pad(text string, width int) string { return fmt.Sprintf("%-*s", width, text) }

// cut truncates a line that would otherwise wrap, and keeps only the first line of a text.
func cut(text string, width int) string {
	text, _, _ = strings.Cut(text, "\n")
	runes := []rune(text)
	if width == 0 || len(runes) <= width {
		return text
	}
	return string(runes[:width-1]) + "…"
}
