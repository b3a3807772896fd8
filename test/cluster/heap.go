package cluster

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// The metrics that every Go program exports which uses controller-runtime.
const (
	metricLive       = "go_gc_heap_live_bytes"
	metricCollected  = "go_gc_cycles_total_gc_cycles_total"
	metricGoroutines = "go_goroutines"
)

// Kept is what a Go program keeps in memory.
type Kept struct {
	// Live is the heap in bytes that the last garbage collection has left.
	Live int64
	// Goroutines is their number.
	Goroutines int

	collections int
}

// KeptBy returns what a program keeps after two garbage collections, by its metrics at http://address/metrics. The
// second one also frees what was in pools. Reading the metrics makes the garbage that starts the collections, so that a
// program at rest needs a second or so. It fails when ctx ends.
func KeptBy(ctx context.Context, address string) (Kept, error) {
	first, err := readKept(ctx, address)
	for now := first; err == nil; now, err = readKept(ctx, address) {
		if now.collections >= first.collections+2 {
			return now, nil
		}
	}
	return Kept{}, fmt.Errorf("read the memory of a program: %w", err)
}

func readKept(ctx context.Context, address string) (Kept, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return Kept{}, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return Kept{}, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return Kept{}, fmt.Errorf("the response for metrics is %s", response.Status)
	}
	return parseKept(response.Body)
}

func parseKept(text io.Reader) (Kept, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(text)
	if err != nil {
		return Kept{}, err
	}
	values := map[string]float64{}
	for _, name := range []string{metricLive, metricCollected, metricGoroutines} {
		metrics := families[name].GetMetric()
		if len(metrics) != 1 {
			return Kept{}, fmt.Errorf("there are %d metrics %s", len(metrics), name)
		}
		// Either is set.
		values[name] = metrics[0].GetGauge().GetValue() + metrics[0].GetCounter().GetValue()
	}
	return Kept{
		Live: int64(values[metricLive]), Goroutines: int(values[metricGoroutines]), collections: int(values[metricCollected]),
	}, nil
}
