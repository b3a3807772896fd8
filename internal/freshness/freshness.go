// Package freshness tells a writer whether the cache already shows what it wrote last, so that it
// does not write the same again from an old copy. What it remembers may be lost at any time.
package freshness

import (
	"sync"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// Tracker remembers the resource version of the last write to each object.
type Tracker struct {
	mu    sync.Mutex
	wrote map[string]string
}

// NewTracker returns an empty Tracker.
func NewTracker() *Tracker { return &Tracker{wrote: map[string]string{}} }

// Wrote records the version that a write to the object has produced.
func (t *Tracker) Wrote(key, version string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wrote[key] = version
}

// Stale tells whether this version of the object is older than the last write to it. Once the cache
// has caught up, the record is dropped.
func (t *Tracker) Stale(key, version string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	wrote, known := t.wrote[key]
	if !known {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(version, wrote)
	if err == nil && order < 0 {
		return true
	}
	delete(t.wrote, key)
	return false
}

// Forget drops the record of an object that is gone.
func (t *Tracker) Forget(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.wrote, key)
}
