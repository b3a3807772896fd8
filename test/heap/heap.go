package heap

import "runtime"

// Live returns the bytes of live objects.
func Live() int64 {
	// What the first cycle frees may have kept other objects: weak pointers and cleanups end with it.
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc) //nolint:gosec // A process has far less.
}
