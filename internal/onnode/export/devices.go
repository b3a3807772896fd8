package export

import (
	"context"
	"sync"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi"
)

const (
	// nodeKept is how long what the Node said is told again: scrapes of several collectors, or a short
	// scrape interval, must not become a load on the API server.
	nodeKept = 30 * time.Second
	// nodeTimeout bounds the request, within the time that Prometheus gives a scrape (10 s).
	nodeTimeout = 5 * time.Second
	// unknown is the number of devices that cannot be counted.
	unknown = -1
)

// devices counts the GPUs that the Node advertises.
type devices struct {
	resources func(ctx context.Context) (nodeapi.Resources, error)
	log       *reasons

	mutex       sync.Mutex
	askedAt     time.Time
	last        int64
	lastSuccess time.Time
}

// count returns the number of GPUs and MIG devices in the Node's capacity, unhealthy ones included,
// or unknown, and when there was one last; the zero time is never.
func (d *devices) count(now time.Time) (count int64, lastSuccess time.Time) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if !d.askedAt.IsZero() && now.Sub(d.askedAt) < nodeKept {
		return d.last, d.lastSuccess
	}
	d.askedAt = now
	ctx, cancel := context.WithTimeout(context.Background(), nodeTimeout)
	defer cancel()
	resources, err := d.resources(ctx)
	d.log.note("the devices of the Node cannot be counted", err)
	if err != nil {
		d.last = unknown
		return d.last, d.lastSuccess
	}
	d.last = 0
	for name, quantity := range resources.Capacity {
		if labels.IsGPUResource(name) {
			d.last += quantity.Value()
		}
	}
	if d.last > 0 {
		d.lastSuccess = now
	}
	return d.last, d.lastSuccess
}
