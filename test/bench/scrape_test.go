package main

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

const page = `# TYPE go_memstats_heap_inuse_bytes gauge
go_memstats_heap_inuse_bytes 1.5e+07
# TYPE controller_runtime_reconcile_time_seconds histogram
controller_runtime_reconcile_time_seconds_bucket{controller="clusterpolicy",le="0.01"} 2
controller_runtime_reconcile_time_seconds_bucket{controller="clusterpolicy",le="0.1"} 12
controller_runtime_reconcile_time_seconds_bucket{controller="clusterpolicy",le="+Inf"} 13
controller_runtime_reconcile_time_seconds_sum{controller="clusterpolicy"} 2.6
controller_runtime_reconcile_time_seconds_count{controller="clusterpolicy"} 13
`

func TestMetricsAreRead(t *testing.T) {
	g := NewWithT(t)
	got, err := readMetrics(strings.NewReader(page))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(got.heap).To(Equal(1.5e7))
	pass := got.times[passes]
	g.Expect(pass.mean()).To(Equal(200 * time.Millisecond))
	g.Expect(pass.quantile(0.1)).To(Equal(6500*time.Microsecond), "1.3 of 2 in the first bucket")
	g.Expect(pass.quantile(0.5)).To(BeNumerically("~", 50500*time.Microsecond, time.Microsecond),
		"4.5 of 10 in the second bucket")
	g.Expect(pass.quantile(0.99)).To(Equal(100*time.Millisecond), "the last finite bound, for an observation above it")
	g.Expect(got.times[reconciles].mean()).To(BeZero(), "no observations")

	before := histogram{count: 10, sum: 1, buckets: []bucket{{bound: 0.01, count: 2}, {bound: 0.1, count: 10}}}
	since := pass.since(before)
	g.Expect(since.count).To(Equal(uint64(3)))
	g.Expect(since.mean()).To(BeNumerically("~", 533*time.Millisecond, time.Millisecond))
	g.Expect(since.quantile(0.5)).To(BeNumerically("~", 77500*time.Microsecond, time.Microsecond),
		"1.5 of the 2 that are new in the second bucket")

	_, err = readMetrics(strings.NewReader("no metric at all\n"))
	g.Expect(err).To(HaveOccurred())
}
