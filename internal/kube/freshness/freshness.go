// Package freshness compares versions of an object, so that a writer does not repeat a write from a stale cache.
package freshness

import "k8s.io/apimachinery/pkg/util/resourceversion"

// Stale reports whether version, that of an object in a cache, is older than wrote, that of the last write to
// the object. It is false if the versions cannot be compared, as when wrote is empty: there was no write.
func Stale(version, wrote string) bool {
	order, err := resourceversion.CompareResourceVersion(version, wrote)
	return err == nil && order < 0
}
