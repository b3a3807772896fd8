package invariant

import (
	"fmt"
	"slices"
	"time"

	"github.com/clusterpolicy/gpu-operator/test/campaign/fault"
)

// What one object may cost: so many writes in a while, and so many that change nothing. A fault may explain one or two of
// those, such as a second process that begins with an old view.
const (
	mostWrites  = 25
	while       = 10 * time.Second
	mostNothing = 2
)

// cost: an object that is written again and again, whether that fails or changes nothing.
func cost(r *Run, f *found) {
	writes := slices.SortedFunc(slices.Values(r.Writes), func(a, b fault.Record) int { return a.Begin.Compare(b.Begin) })
	recent := map[fault.Request][]time.Time{}
	for _, write := range writes {
		times := append(recent[write.Request], write.Begin)
		for times[0].Before(write.Begin.Add(-while)) {
			times = times[1:]
		}
		if recent[write.Request] = times; len(times) > mostWrites {
			f.add(write.String(), 0, fmt.Sprintf("more than %d such writes in %s", mostWrites, while))
		}
	}
	r.judgeNothing(writes, f)
}

// judgeNothing counts the writes after which an object is as an earlier one has left it, whose answer was not lost.
func (r *Run) judgeNothing(writes []fault.Record, f *found) {
	type revision struct{ resource, namespace, name, version string }
	made := map[revision]bool{}
	nothing := map[string]int{}
	for _, write := range writes {
		if write.Code >= 300 || write.Code == 0 || write.Version == "" || write.Verb == fault.Delete {
			continue
		}
		at := revision{write.Resource, write.Namespace, write.Name, write.Version}
		if made[at] {
			if nothing[write.String()]++; nothing[write.String()] > mostNothing {
				f.add(write.String(), 0, fmt.Sprintf("more than %d such writes changed nothing", mostNothing))
			}
		}
		made[at] = !write.Lost
	}
}
