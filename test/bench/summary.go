package main

import (
	"fmt"
	"regexp"
	"strings"
)

const (
	summaryBegin = "<!-- summary: written by make bench -->\n"
	summaryEnd   = "<!-- end of summary -->\n"
)

// block is what the document has of one size.
var block = regexp.MustCompile(`(?s)<!-- ([^\n]+): written by make bench -->\n(.*?)<!-- end of [^\n]+ -->\n`)

// withSummary replaces the summary of a document, between its markers, by one of its tables: the figures that miss
// their goal or have that of another operator beside them. Without the markers it returns the document as it is.
func withSummary(text string) string {
	before, rest, found := strings.Cut(text, summaryBegin)
	_, after, closed := strings.Cut(rest, summaryEnd)
	if !found || !closed {
		return text
	}
	rows := [][]string{{"nodes", "what", "measured", "goal", "", "the other operator"}}
	var goals []string
	for _, part := range block.FindAllStringSubmatch(before+after, -1) {
		met, all := 0, 0
		for _, row := range figureRows(part[2]) {
			what, goal, measured, verdict, beside := row[0], row[1], row[2], row[3], ""
			if len(row) > summaryCells {
				beside = row[summaryCells]
			}
			if goal != "" {
				all++
			}
			if verdict == "met" {
				met++
			}
			if verdict == "missed" || beside != "" {
				rows = append(rows, []string{strings.Replace(part[1], " nodes", "", 1), what, measured, goal, verdict, beside})
			}
		}
		goals = append(goals, fmt.Sprintf("%d of %d at %s", met, all, part[1]))
	}
	var summary strings.Builder
	fmt.Fprintf(&summary, "Goals met: %s.\n\n", strings.Join(goals, "; "))
	writeTable(&summary, rows)
	return before + summaryBegin + summary.String() + summaryEnd + after
}

// summaryCells is how many cells a row of figures has; a further one is of another operator.
const summaryCells = 4

// figureRows are the rows of the first table in a part of the document, by their cells.
func figureRows(part string) [][]string {
	var rows [][]string
	for line := range strings.Lines(part) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		switch {
		case len(cells) == summaryCells || len(cells) == summaryCells+1:
			for i, cell := range cells {
				cells[i] = strings.TrimSpace(cell)
			}
			rows = append(rows, cells)
		case len(rows) > 0:
			return rows[2:]
		}
	}
	return nil
}
