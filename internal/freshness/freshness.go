// Package freshness compares versions of an object, so that a writer does not write the same again from an old copy.
package freshness

import "k8s.io/apimachinery/pkg/util/resourceversion"

// Stale reports whether this version of an object, as a cache shows it, is older than the one that the last write to it
// has produced. Versions that cannot be compared are not, nor is any where wrote is empty: there was no write.
func Stale(version, wrote string) bool {
	if wrote == "" {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(version, wrote)
	return err == nil && order < 0
}
