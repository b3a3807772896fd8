package main

import (
	"fmt"
	"io"
	"strings"
)

// row is the result of a package.
type row struct {
	pkg                          string
	live, unrun, killed, stopped int
	untried                      int
}

func (r *row) count(v verdict) {
	switch v {
	case live:
		r.live++
	case unrun:
		r.unrun++
	case killed:
		r.killed++
	case stopped:
		r.stopped++
	}
}

func (r *row) tried() int { return r.live + r.unrun + r.killed + r.stopped }

// percent returns the part of the mutants that no test noticed.
func (r *row) percent() float64 {
	if r.tried() == 0 {
		return 0
	}
	return 100 * float64(r.live+r.unrun) / float64(r.tried())
}

// total adds up the rows.
func total(rows []*row) *row {
	sum := &row{pkg: "all"}
	for _, r := range rows {
		sum.live += r.live
		sum.unrun += r.unrun
		sum.killed += r.killed
		sum.stopped += r.stopped
		sum.untried += r.untried
	}
	return sum
}

// writeTable writes the result by package, as Markdown.
func writeTable(w io.Writer, rows []*row) {
	fmt.Fprintln(w, "\n| package | mutants | killed | by the time limit | live | not reached | live, % |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|")
	for _, r := range append(rows, total(rows)) {
		fmt.Fprintf(w, "| %s | %d | %d | %d | %d | %d | %.0f |\n", strings.TrimSpace(r.pkg), r.tried(),
			r.killed+r.stopped, r.stopped, r.live+r.unrun, r.unrun, r.percent())
	}
	if untried := total(rows).untried; untried > 0 {
		fmt.Fprintf(w, "\nThe time was over before %d more were tried; they are not counted.\n", untried)
	}
}
