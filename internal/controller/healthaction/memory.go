package healthaction

import (
	"maps"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/health/healthaction"
	"github.com/clusterpolicy/gpu-operator/internal/kube/freshness"
	"github.com/clusterpolicy/gpu-operator/internal/names/times"
)

// memory is what one pass leaves to the next. All of it may be lost: that costs an early attempt or a
// rejected write, or a node that is rejected keeps its place for longer.
type memory struct {
	// versions are the resource versions after the last writes to Nodes, until the cache shows them.
	versions freshness.Writes
	// failures are the nodes for which a write has failed.
	failures map[string]failure
	// rejections are the nodes whose claims or actions fail, until the action is done, or is not wanted any more.
	rejections map[string]rejection
	// idle: the last pass had no action for any class, and found nothing to undo.
	idle bool
}

// failure is a write that has failed.
type failure struct {
	times.Backoff
	// message is the API server's; empty if it has not answered. The text of other errors may differ each time.
	message string
}

// rejection is an action that the API server rejects, or does not answer.
type rejection struct {
	since time.Time
	// until is when the action is tried again that was given up; zero before it was.
	until time.Time
	// message is the API server's; empty if it has not answered.
	message string
}

func newMemory() memory {
	return memory{versions: freshness.Writes{}, failures: map[string]failure{}, rejections: map[string]rejection{}}
}

// reject remembers that an action was rejected, and gives it up for the time wait if it has been for so long.
func (m *memory) reject(node string, now time.Time, wait time.Duration, message string) {
	r := m.rejections[node]
	if r.since.IsZero() {
		r.since = now
	}
	if now.Sub(r.since) >= wait {
		r.until = now.Add(wait)
	}
	r.message = message
	m.rejections[node] = r
}

// endRejections forgets the rejections of nodes that are to get neither a place nor an action, unless that is because
// it was given up.
func (m *memory) endRejections(steps []healthaction.Step, now time.Time) {
	wanted := map[string]bool{}
	for i := range steps {
		wanted[steps[i].Node] = steps[i].TakesPlace()
	}
	maps.DeleteFunc(m.rejections, func(node string, r rejection) bool { return !wanted[node] && !now.Before(r.until) })
}

// prune forgets nodes that are not observed any more.
func (m *memory) prune(observed func(node string) bool) {
	for node := range m.versions {
		if !observed(node) {
			delete(m.versions, node)
		}
	}
	for node := range m.failures {
		if !observed(node) {
			delete(m.failures, node)
		}
	}
	for node := range m.rejections {
		if !observed(node) {
			delete(m.rejections, node)
		}
	}
}
