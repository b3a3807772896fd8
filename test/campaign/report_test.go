package campaign

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/clusterpolicy/gpu-operator/test/campaign/invariant"
	"github.com/clusterpolicy/gpu-operator/test/resultfile"
)

// tally counts the results of the points of a row.
type tally struct {
	passed, failed, missed, total int
	recoveries                    []float64
}

func (r results) tally(id string, points []point) tally {
	t := tally{total: len(points)}
	for _, p := range points {
		switch k := r.Of(id + "/" + p.name); k.Verdict {
		case passed:
			t.passed++
			t.recoveries = append(t.recoveries, k.Recovery)
		case failed:
			t.failed++
		case missed:
			t.missed++
		}
	}
	slices.Sort(t.recoveries)
	return t
}

// quantile returns the quantile of sorted numbers, 0 if there are none.
func quantile(sorted []float64, part float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(part*float64(len(sorted)-1))]
}

// writeReport writes the results for the operator into docs/test-report.md.
func (r results) writeReport(points map[string][]point, operator string) error {
	var text strings.Builder
	text.WriteString("\n## Campaign\n\nThe fault campaign ([campaign.md](campaign.md)) on a real control plane with " +
		"simulated nodes.\n\n")
	fmt.Fprintf(&text, "Commit `%s`, operator `%s`, %s, %d cores.\n\n", commit(), operator,
		time.Now().UTC().Format(time.DateOnly), runtime.NumCPU())
	body, sum := r.rowsTable(points)
	fmt.Fprintf(&text,
		"Points: %d of %d run, **%d failed**; in %d the fault had no target. Seeded bugs caught: **%s**.\n\n",
		sum.passed+sum.failed+sum.missed, sum.total, sum.failed, sum.missed, r.bugsCaught())
	text.WriteString(r.earlier(points))
	text.WriteString(body)
	text.WriteString(r.failures())
	text.WriteString("\n### Rows that do not run here\n\n| row | fault | reason, or where |\n|---|---|---|\n")
	for _, row := range rows() {
		if row.points == nil {
			fmt.Fprintf(&text, "| %s | %s | %s |\n", row.id, row.what, row.left+row.elsewhere)
		}
	}
	text.WriteString("\n### Invariants\n\n| | invariant | checked |\n|---|---|---|\n")
	for _, i := range invariant.Table() {
		fmt.Fprintf(&text, "| %s | %s | %s |\n", i.ID, i.What, howChecked(i))
	}
	file := filepath.Join(repo, "docs", "test-report.md")
	before, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	text.WriteString("\n")
	after := resultfile.ReplacePart(before, "campaign", "make test-full", text.String())
	return os.WriteFile(file, after, 0o644) //nolint:gosec // a document
}

func howChecked(i invariant.Invariant) string {
	switch {
	case i.ByRunner:
		return "by the runner"
	default:
		return "on the history"
	}
}

func (r results) rowsTable(points map[string][]point) (string, tally) {
	var text strings.Builder
	var sum tally
	text.WriteString("| row | fault | passed | failed | no target | recovered after: p50, p95, max " +
		"|\n|---|---|---|---|---|---|\n")
	for _, row := range rows() {
		if row.points == nil {
			continue
		}
		t := r.tally(row.id, points[row.id])
		recovered := ""
		if len(t.recoveries) > 0 {
			recovered = fmt.Sprintf("%.1f, %.1f, %.1f s", quantile(t.recoveries, 0.5), quantile(t.recoveries, 0.95),
				quantile(t.recoveries, 1))
		}
		fmt.Fprintf(&text, "| %s | %s | %d of %d | %d | %d | %s |\n", row.id, row.what, t.passed, t.total, t.failed, t.missed,
			recovered)
		sum.passed, sum.failed, sum.missed, sum.total = sum.passed+t.passed, sum.failed+t.failed, sum.missed+
			t.missed, sum.total+t.total
	}
	return text.String(), sum
}

// earlier returns a note on the results of other commits.
func (r results) earlier(points map[string][]point) string {
	known, commits := r.All(), []string(nil)
	for id, all := range points {
		for _, p := range all {
			if k, there := known[id+"/"+p.name]; there {
				commits = append(commits, k.Commit)
			}
		}
	}
	return resultfile.Earlier(commits, commit(), "%d of the points were last run at commit `%s`.\n\n")
}

// failures lists the points that failed, with their first violation.
func (r results) failures() string {
	var lines []string
	for point, k := range r.All() {
		if k.Verdict == failed {
			lines = append(lines, fmt.Sprintf("- `%s`: %s", point, k.Detail))
		}
	}
	if len(lines) == 0 {
		return ""
	}
	slices.Sort(lines)
	return "\nFailed:\n\n" + strings.Join(lines, "\n") + "\n"
}

func (r results) bugsCaught() string {
	caught, all := 0, 0
	for point, k := range r.All() {
		if strings.HasPrefix(point, bugPrefix) {
			if all++; k.Verdict == passed {
				caught++
			}
		}
	}
	return fmt.Sprintf("%d of %d", caught, all)
}
