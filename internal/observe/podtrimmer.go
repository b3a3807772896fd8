package observe

import "sync"

// sharedAtMost bounds the parts that a PodTrimmer keeps: many times those of a cluster, which has three for each
// DaemonSet and each of its templates.
const sharedAtMost = 512

// PodTrimmer trims pods and has them share the small parts that many have in common: the pods of a template have the
// same operand, digest and DaemonSet. Objects in a cache are never changed, so that all may have the same part. What it
// keeps may be lost: equal parts are then made once more.
type PodTrimmer struct {
	mu     sync.Mutex
	shared map[any]any
}

// NewPodTrimmer returns a PodTrimmer for one cache.
func NewPodTrimmer() *PodTrimmer { return &PodTrimmer{shared: map[any]any{}} }

// share returns the part that is kept under the key, or builds it.
func share[V any](t *PodTrimmer, key any, build func() V) V {
	t.mu.Lock()
	defer t.mu.Unlock()
	if value, known := t.shared[key].(V); known {
		return value
	}
	if len(t.shared) >= sharedAtMost {
		// Most are of templates that are gone.
		clear(t.shared)
	}
	value := build()
	t.shared[key] = value
	return value
}
