package main

import (
	"fmt"
	"io"
	"strings"
)

// row is the result of a package, as it is kept for the report.
type row struct {
	Package                      string
	Live, Unrun, Killed, Stopped int
	Untried                      int `json:",omitempty"`
	// Suites: the tests that -short leaves out have judged, too.
	Suites bool `json:",omitempty"`
	// Seed, Mutants and Importers are what was chosen, at this commit.
	Seed               uint64
	Mutants, Importers int
	Commit             string
}

func (r *row) count(v verdict) {
	switch v {
	case live:
		r.Live++
	case unrun:
		r.Unrun++
	case killed:
		r.Killed++
	case stopped:
		r.Stopped++
	}
}

func (r *row) tried() int { return r.Live + r.Unrun + r.Killed + r.Stopped }

// percent returns the part of the mutants that no test noticed.
func (r *row) percent() float64 {
	if r.tried() == 0 {
		return 0
	}
	return 100 * float64(r.Live+r.Unrun) / float64(r.tried())
}

// total adds up the rows.
func total(rows []*row) *row {
	sum := &row{Package: "all"}
	for _, r := range rows {
		sum.Live += r.Live
		sum.Unrun += r.Unrun
		sum.Killed += r.Killed
		sum.Stopped += r.Stopped
		sum.Untried += r.Untried
	}
	return sum
}

// writeTable writes the result by package, as Markdown.
func writeTable(w io.Writer, rows []*row) {
	fmt.Fprintln(w, "\n| package | mutants | killed | by the time limit | live | not reached | live, % |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|")
	for _, r := range append(rows, total(rows)) {
		fmt.Fprintf(w, "| %s | %d | %d | %d | %d | %d | %.0f |\n", strings.TrimSpace(r.Package), r.tried(),
			r.Killed+r.Stopped, r.Stopped, r.Live+r.Unrun, r.Unrun, r.percent())
	}
	if untried := total(rows).Untried; untried > 0 {
		fmt.Fprintf(w, "\nThe time was over before %d more were tried; they are not counted.\n", untried)
	}
}
