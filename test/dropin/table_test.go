package dropin

import (
	"testing"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// verdict is what becomes of a line of NVIDIA's users.
type verdict string

const (
	// honoured: it has the effect that it has with NVIDIA's operator.
	honoured verdict = "honoured"
	// ignored: it has no effect, as with NVIDIA's operator or because nothing needs it, and the user is informed.
	ignored verdict = "with a note"
	// refused: an error names the field and the remedy, and nothing is installed.
	refused verdict = "refused with the remedy"
)

// excuse is why a line may be refused. There are no others.
type excuse string

const (
	// failsThere: NVIDIA's operator accepts it, and its operands or the API server fail on it later.
	failsThere excuse = "fails with NVIDIA's operator later"
	// misspelt: with NVIDIA's operator it has none of the effect that it is set for, silently.
	misspelt excuse = "is misspelt"
	// twoOperators: it is not about this operator's input, but about two operators for one kind.
	twoOperators excuse = "is about two operators"
	// notSupported: the operator reports it as not supported yet.
	notSupported excuse = "is " + v1.ReasonNotSupportedYet
)

// excuses are those that a row may have.
var excuses = map[excuse]bool{failsThere: true, misspelt: true, twoOperators: true, notSupported: true}

// row is one line of NVIDIA's users. Each group of lines has a file with a table of rows.
type row struct {
	name string
	// check fails the test unless the line has the verdict.
	verdict verdict
	// because is set if the verdict is refused.
	because excuse
	check   func(e *env)
	// full rows only run with TEST_FULL=1.
	full bool
}

// tryAll runs the rows of a table, and adds them to the sum of this run.
func (e *env) tryAll(of group, rows []row) {
	e.t.Helper()
	found := counts{excuses: map[excuse]int{}}
	for _, r := range rows {
		if (r.verdict == refused) != excuses[r.because] {
			e.t.Errorf("%s is %s, with the excuse %q: refused rows have one of the known excuses, and no others have one",
				r.name, r.verdict, r.because)
		}
		found.all++
		switch {
		case r.full && !cluster.FullCampaigns():
		case e.t.Run(r.name, func(t *testing.T) { r.check(e.in(t)) }):
			found.add(r)
		default:
			found.failed++
		}
	}
	total.add(of, found)
}
