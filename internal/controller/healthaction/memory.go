package healthaction

import "time"

// memory is what one pass leaves to the next. All of it may be lost: that costs an early attempt or a rejected write.
type memory struct {
	// versions are the resource versions after the last writes to Nodes, until the cache shows them.
	versions map[string]string
	// failures are the nodes for which a write has failed.
	failures map[string]failure
	// idle: the last pass had no action for any class, and found nothing to undo.
	idle bool
}

// failure is a write that has failed.
type failure struct {
	until time.Time
	wait  time.Duration
	// message is the API server's; empty if it has not answered. The text of other errors may differ each time.
	message string
}

func newMemory() memory {
	return memory{versions: map[string]string{}, failures: map[string]failure{}}
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
}
