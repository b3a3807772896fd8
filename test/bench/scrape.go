package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Metrics of the operator that bench reads.
const (
	metricHeap      = "go_memstats_heap_inuse_bytes"
	metricReconcile = "controller_runtime_reconcile_time_seconds"

	// passes and reconciles are the names of the controllers: of the policy, and of single nodes.
	passes     = "clusterpolicy"
	reconciles = "node"
)

// scraped is one response of the operator's metrics endpoint.
type scraped struct {
	// heap is the size of the heap spans in use, in bytes.
	heap float64
	// times are the durations of reconciles, by controller.
	times map[string]histogram
}

// scrape reads the operator's metrics.
func (o *operator) scrape(ctx context.Context) (scraped, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+o.metrics+"/metrics", nil)
	if err != nil {
		return scraped{}, fmt.Errorf("read metrics: %w", err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return scraped{}, fmt.Errorf("read metrics: %w", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return scraped{}, fmt.Errorf("read metrics: the response is %s", answer.Status)
	}
	return readMetrics(answer.Body)
}

func readMetrics(text io.Reader) (scraped, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(text)
	if err != nil {
		return scraped{}, fmt.Errorf("read metrics: %w", err)
	}
	s := scraped{times: map[string]histogram{}}
	for _, metric := range families[metricHeap].GetMetric() {
		s.heap = metric.GetGauge().GetValue()
	}
	for _, metric := range families[metricReconcile].GetMetric() {
		h := histogram{count: metric.GetHistogram().GetSampleCount(), sum: metric.GetHistogram().GetSampleSum()}
		for _, each := range metric.GetHistogram().GetBucket() {
			h.buckets = append(h.buckets, bucket{bound: each.GetUpperBound(), count: each.GetCumulativeCount()})
		}
		for _, label := range metric.GetLabel() {
			if label.GetName() == "controller" {
				s.times[label.GetValue()] = h
			}
		}
	}
	return s, nil
}

// histogram is a histogram of durations in seconds.
type histogram struct {
	count   uint64
	sum     float64
	buckets []bucket
}

// bucket counts the observations up to its bound.
type bucket struct {
	bound float64
	count uint64
}

// since returns the observations after an earlier response of the same process.
func (h histogram) since(before histogram) histogram {
	after := histogram{count: h.count - before.count, sum: h.sum - before.sum}
	for i, b := range h.buckets {
		if i < len(before.buckets) {
			b.count -= before.buckets[i].count
		}
		after.buckets = append(after.buckets, b)
	}
	return after
}

// mean returns the mean; zero without observations.
func (h histogram) mean() time.Duration {
	if h.count == 0 {
		return 0
	}
	return inSeconds(h.sum / float64(h.count))
}

// quantile returns a quantile as Prometheus computes it: interpolated linearly in its bucket, or the last finite
// bound if it lies above that.
func (h histogram) quantile(part float64) time.Duration {
	rank := part * float64(h.count)
	lower := bucket{}
	for _, b := range h.buckets {
		if math.IsInf(b.bound, 1) {
			break
		}
		if float64(b.count) >= rank && b.count > lower.count {
			return inSeconds(lower.bound + (b.bound-lower.bound)*(rank-float64(lower.count))/float64(b.count-lower.count))
		}
		lower = b
	}
	return inSeconds(lower.bound)
}

func inSeconds(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }
