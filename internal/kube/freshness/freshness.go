// Package freshness compares versions of an object, so that a writer does not repeat a write from a stale cache, and
// reports whether an object must be left alone meanwhile.
package freshness

import (
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// Stale reports whether version, that of an object in a cache, is older than wrote, that of the last write to
// the object. It is false if the versions cannot be compared, as when wrote is empty: there was no write.
func Stale(version, wrote string) bool {
	order, err := resourceversion.CompareResourceVersion(version, wrote)
	return err == nil && order < 0
}

// Writes has the versions of objects after the last writes to them, by name, until the cache shows them.
type Writes map[string]string

// Held reports whether an object of this version in the cache must be left alone, and after how long to look again: the
// cache does not show the last write to it, or a back-off is not over.
func (w Writes) Held(name, version string, retry, backoff time.Duration) (held bool, recheck time.Duration) {
	if Stale(version, w[name]) {
		return true, retry
	}
	return backoff > 0, max(0, backoff)
}

// Forget forgets the last write to an object if the version in the cache shows it.
func (w Writes) Forget(name, version string) {
	if !Stale(version, w[name]) {
		delete(w, name)
	}
}
