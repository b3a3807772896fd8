package heap

import "runtime"

// Collect frees what is not kept, so that weak pointers to it are nil.
func Collect() {
	// What the first cycle frees may have kept other objects: weak pointers and cleanups end with it.
	runtime.GC()
	runtime.GC()
}

// Live returns the bytes of live objects.
func Live() int64 {
	Collect()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc) //nolint:gosec // A process has far less.
}
