package export

import (
	"context"
	"sync"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi"
)

const (
	// nodeTTL is how long the resources of the Node are cached, so that several collectors or a short scrape
	// interval do not load the API server.
	nodeTTL = 30 * time.Second
	// nodeTimeout limits the request, within the scrape timeout of Prometheus (10 s).
	nodeTimeout = 5 * time.Second
	// unknown is the number of devices that cannot be counted.
	unknown = -1
)

// devices counts the GPUs that the Node advertises.
type devices struct {
	resources func(ctx context.Context) (nodeapi.Resources, error)
	log       *reasons

	mutex       sync.Mutex
	readAt      time.Time
	last        int64
	lastSuccess time.Time
}

// count returns the number of GPUs and MIG devices in the Node's capacity, unhealthy ones included, or unknown;
// and when it was above 0 last, the zero time for never.
func (d *devices) count(now time.Time) (count int64, lastSuccess time.Time) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if !d.readAt.IsZero() && now.Sub(d.readAt) < nodeTTL {
		return d.last, d.lastSuccess
	}
	d.readAt = now
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
