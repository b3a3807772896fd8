package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/clusterpolicy/gpu-operator/test/resultfile"
)

// print prints the result of a phase.
func (out outcome) print(w io.Writer) {
	for _, f := range out.Figures {
		line := fmt.Sprintf("  %s: %s", f.What, f.Measured)
		if f.Beside != "" {
			line += ", the other operator: " + f.Beside
		}
		if f.Goal != "" {
			line += fmt.Sprintf(" (goal %s: %s)", f.Goal, f.verdict())
		}
		fmt.Fprintln(w, line)
	}
	for _, t := range out.Tallies {
		fmt.Fprintf(w, "  calls, %s: %d writes, %d Events, %d lists\n", t.What, t.Writes, t.Events, t.Lists)
		for _, detail := range []string{t.Detail, t.Reads} {
			if detail != "" {
				fmt.Fprintln(w, "    "+detail)
			}
		}
	}
}

// figures returns those of all phases in their order, and the ratios between them.
func (k kept) figures() []figure {
	var all []figure
	for _, p := range phases() {
		all = append(all, k.Phases[p.name].Outcome.Figures...)
	}
	var ratios []figure
	for _, r := range []struct {
		floor name
		what  string
		limit float64
	}{
		{floorTime, "ready with the operator, against its DaemonSets without it", ratioLimit},
		{
			labellingFloorTime, "the same, against its DaemonSets on nodes that a plain loop labels meanwhile",
			labellingRatioLimit,
		},
	} {
		ready, floor := find(all, readyTime), find(all, r.floor)
		if ready != nil && floor != nil && floor.Value > 0 {
			ratios = append(ratios, atMost(r.what, ready.Value/floor.Value, r.limit, times))
		}
	}
	return append(ratios, all...)
}

func find(all []figure, wanted name) *figure {
	if i := slices.IndexFunc(all, func(f figure) bool { return f.Name == wanted }); i >= 0 {
		return &all[i]
	}
	return nil
}

// missed counts the missed goals.
func (k kept) missed() int {
	missed := 0
	for _, f := range k.figures() {
		if f.verdict() == "missed" {
			missed++
		}
	}
	return missed
}

// table returns all figures of a size, in Markdown.
func (k kept) table() string {
	var text strings.Builder
	fmt.Fprintf(&text, "### %s\n\n%s\n\n", k.heading(k.Nodes), k.origin())
	rows := [][]string{{"what", "goal", "measured", "", "the other operator"}}
	for _, f := range k.figures() {
		rows = append(rows, []string{f.What, f.Goal, f.Measured, f.verdict(), f.Beside})
	}
	if k.Other == "" {
		for i := range rows {
			rows[i] = rows[i][:4]
		}
	}
	writeTable(&text, rows)
	fmt.Fprintf(&text, "\nCalls of the operator:\n\n")
	rows = [][]string{{"what happens", "writes", "Events", "lists", "writes by verb and resource", "reads"}}
	for _, p := range phases() {
		for _, t := range k.Phases[p.name].Outcome.Tallies {
			rows = append(rows,
				[]string{t.What, fmt.Sprint(t.Writes), fmt.Sprint(t.Events), fmt.Sprint(t.Lists), t.Detail, t.Reads})
		}
	}
	writeTable(&text, rows)
	return text.String()
}

// quiet is the load up to which a machine counts as idle.
const quiet = 0.5

// origin returns the machine, date and commits of the figures.
func (k kept) origin() string {
	machines, commits, dates := map[string]bool{}, map[string]bool{}, map[string]bool{}
	busiest := 0.0
	for _, p := range k.Phases {
		busiest = max(busiest, p.Load)
		machines[p.Machine], commits[p.Commit], dates[p.Date] = true, true, true
	}
	join := func(set map[string]bool) string { return strings.Join(slices.Sorted(maps.Keys(set)), ", ") }
	text := fmt.Sprintf("Measured on %s, %s, commit %s.", join(dates), join(machines), join(commits))
	if busiest > quiet {
		text += fmt.Sprintf(" The machine had other work: a load of up to %.1f before a run. Times and CPU are too high; "+
			"the numbers of calls follow the times.", busiest)
	}
	return text
}

// writeTable writes a Markdown table with aligned columns, to be readable on a terminal.
func writeTable(out io.Writer, rows [][]string) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len(cell))
		}
	}
	line := func(cells []string) {
		for i, cell := range cells {
			fmt.Fprintf(out, "| %-*s ", widths[i], cell)
		}
		fmt.Fprintln(out, "|")
	}
	line(rows[0])
	dashes := make([]string, len(widths))
	for i := range widths {
		dashes[i] = strings.Repeat("-", max(widths[i], 3))
	}
	line(dashes)
	for _, row := range rows[1:] {
		line(row)
	}
}

// writeTo replaces the figures of this size and setting in a file, or appends them, and renews the summary.
func (k kept) writeTo(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read the document for the figures: %w", err)
	}
	if err := os.WriteFile(file, []byte(withSummary(string(k.insert(text)))), 0o644); err != nil {
		return fmt.Errorf("write the figures: %w", err)
	}
	return nil
}

func (k kept) insert(text []byte) []byte {
	return resultfile.ReplacePart(text, k.title(k.Nodes), "make bench", k.table())
}
