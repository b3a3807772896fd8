package dropin

import (
	"testing"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// verdict is what becomes of a line of NVIDIA's users.
type verdict string

const (
	// honoured: it has the effect that it has with NVIDIA's operator.
	honoured verdict = "honoured"
	// ignored: it has no effect, as with NVIDIA's operator or because nothing needs it, and the user is informed.
	ignored verdict = "ignored with a note"
	// refused: an error names the field and the remedy, and nothing is installed.
	refused verdict = "refused with the remedy"
)

// row is one line of NVIDIA's users. Each group of lines has a file with a table of rows.
type row struct {
	name string
	// check fails the test unless the line has the verdict.
	verdict verdict
	check   func(e *env)
	// full rows only run with TEST_FULL=1.
	full bool
}

// tryAll runs the rows of a table, and reports how many have which verdict.
func (e *env) tryAll(rows []row) {
	e.t.Helper()
	counts := map[verdict]int{}
	tried := 0
	for _, r := range rows {
		if r.full && !cluster.FullCampaigns() {
			continue
		}
		tried++
		if e.t.Run(r.name, func(t *testing.T) { r.check(e.in(t)) }) {
			counts[r.verdict]++
		}
	}
	e.t.Logf("%d %s, %d %s, %d %s, of %d tried and %d in all", counts[honoured], honoured, counts[ignored], ignored,
		counts[refused], refused, tried, len(rows))
}
