package invariant

import (
	"fmt"
	"slices"
	"time"

	"github.com/clusterpolicy/gpu-operator/test/campaign/fault"
	"github.com/clusterpolicy/gpu-operator/test/campaign/history"
)

// The write budget of one object: writes in a time window, and writes that change nothing. A fault may cause one or
// two of the latter, such as a second process that starts with an old view.
const (
	mostWrites  = 25
	while       = 10 * time.Second
	mostNothing = 2
)

// cost: an object that is written repeatedly, with errors or without changes.
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

// judgeNothing counts the writes after which an object has a revision from before they began. A write whose response
// was lost may be repeated.
func (r *Run) judgeNothing(writes []fault.Record, f *found) {
	seen := map[history.Key]map[string]time.Time{}
	for _, event := range r.Events {
		if seen[event.Key] == nil {
			seen[event.Key] = map[string]time.Time{}
		}
		seen[event.Key][event.Object.GetResourceVersion()] = event.At
	}
	nothing := map[fault.Request]int{}
	for _, write := range writes {
		if write.Lost {
			nothing[write.Request]--
		}
		if write.Code >= 300 || write.Code == 0 || write.Verb == fault.Delete {
			continue
		}
		key := history.Key{Kind: kinds[write.Resource], Namespace: write.Namespace, Name: write.Name}
		if at, is := seen[key][write.Version]; !is || !at.Before(write.Begin) {
			continue
		}
		if nothing[write.Request]++; nothing[write.Request] > mostNothing {
			f.add(write.String(), 0, fmt.Sprintf("more than %d such writes changed nothing", mostNothing))
		}
	}
}
