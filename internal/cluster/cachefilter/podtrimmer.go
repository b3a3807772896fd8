package cachefilter

import "sync"

// maxShared limits the parts that a PodTrimmer stores. A cluster needs three for each template of each DaemonSet.
const maxShared = 512

// PodTrimmer trims pods before they enter a cache. Pods of one template share the parts that are equal: operand, digest
// and owner. That is safe because cached objects are never modified. The shared parts may be lost: they are built
// again.
type PodTrimmer struct {
	mu     sync.Mutex
	shared map[any]any
}

// NewPodTrimmer returns a PodTrimmer for one cache.
func NewPodTrimmer() *PodTrimmer { return &PodTrimmer{shared: map[any]any{}} }

// share returns the part that is stored under the key, or builds and stores it.
func share[V any](t *PodTrimmer, key any, build func() V) V {
	t.mu.Lock()
	defer t.mu.Unlock()
	if value, exists := t.shared[key].(V); exists {
		return value
	}
	if len(t.shared) >= maxShared {
		// Most are of old templates.
		clear(t.shared)
	}
	value := build()
	t.shared[key] = value
	return value
}
