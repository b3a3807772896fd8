package statuswriter

import (
	"encoding/json"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterpolicy/gpu-operator/internal/names/digest"
)

// ownStatuses has the digest of the last status that a writer has written, or tried to write, by object. It is safe for
// concurrent use: watches ask while a pass writes. If a digest is lost, the event of that write starts a pass, which
// writes nothing.
type ownStatuses struct {
	// most bounds the objects.
	most    int
	mu      sync.Mutex
	digests map[types.UID]string
}

func newOwnStatuses(most int) *ownStatuses {
	return &ownStatuses{most: most, digests: map[types.UID]string{}}
}

// add is called before the write, whose event may come before its answer.
func (o *ownStatuses) add(object types.UID, status any) {
	of := digestOf(status)
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.digests) >= o.most {
		clear(o.digests)
	}
	o.digests[object] = of
}

func (o *ownStatuses) has(object types.UID, status any) bool {
	of := digestOf(status)
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.digests[object] == of
}

// digestOf is that of the status as it is sent: times have whole seconds there, and empty lists are missing.
func digestOf(status any) string {
	// The statuses are plain data, which is always encoded.
	text, _ := json.Marshal(status)
	return digest.Of(text)
}
