package metrics

import (
	"runtime/debug"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
)

// joinBuckets are in seconds, for nodes whose image contains the driver up to nodes that compile it.
var joinBuckets = []float64{1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600}

// Meter collects the operator's own metrics. It has no gauges before the first pass: a replica that is not the leader
// exports none.
type Meter struct {
	clock clock.PassiveClock

	build            prometheus.Metric
	passes, failures prometheus.Counter
	writes, dropped  *prometheus.CounterVec
	joins            *prometheus.HistogramVec

	// mutex guards what follows.
	mutex sync.Mutex
	// last is the last pass, nil before the first.
	last *PassStats
	// undecodable counts the objects that cannot be decoded, by kind.
	undecodable map[string]int
	// success is the last time at which all was known to be ready.
	success time.Time
}

// New returns a Meter, to be registered once.
func New(clk clock.PassiveClock) *Meter {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + name, Help: help})
	}
	vector := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + name, Help: help}, labels)
	}
	return &Meter{
		clock: clk, undecodable: map[string]int{}, build: buildInfo(debug.ReadBuildInfo()),
		passes:   counter("reconciliation_total", "Passes over the cluster."),
		failures: counter("reconciliation_failed_total", "Passes in which a call to the API server failed."),
		writes:   vector("api_writes_total", "Write requests to the API server, including failed ones.", "resource", "verb"),
		dropped: vector("events_dropped_total",
			"Events that were not written because of the rate limit, by the kind of their object.", "kind"),
		joins: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    prefix + "node_join_seconds",
			Help:    "Seconds from the time a GPU node joined until it reached a stage.",
			Buckets: joinBuckets,
		}, []string{"stage"}),
	}
}

// Describe implements prometheus.Collector.
func (m *Meter) Describe(descriptions chan<- *prometheus.Desc) {
	for _, c := range m.collectors() {
		c.Describe(descriptions)
	}
	descriptions <- m.build.Desc()
	for _, g := range gauges {
		descriptions <- g.description
	}
}

// Collect implements prometheus.Collector.
func (m *Meter) Collect(samples chan<- prometheus.Metric) {
	for _, c := range m.collectors() {
		c.Collect(samples)
	}
	samples <- m.build
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.last == nil {
		return
	}
	if m.last.reconciliationStatus() == succeeded {
		// Any change since would have caused another pass.
		m.success = m.clock.Now()
	}
	for _, g := range gauges {
		g.read(m, func(value float64, labels ...string) {
			samples <- prometheus.MustNewConstMetric(g.description, prometheus.GaugeValue, value, labels...)
		})
	}
}

func (m *Meter) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.passes, m.failures, m.writes, m.dropped, m.joins}
}

// ObservePass records the results of a pass.
func (m *Meter) ObservePass(pass PassStats) {
	m.passes.Inc()
	if pass.Failed {
		m.failures.Inc()
	}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.last != nil && m.last.reconciliationStatus() == succeeded {
		m.success = m.clock.Now()
	}
	if pass.Nodes == nil && pass.Failed && m.last != nil {
		// The pass failed before it counted them.
		pass.Nodes = m.last.Nodes
	}
	m.last = &pass
	if pass.reconciliationStatus() == succeeded {
		m.success = m.clock.Now()
	}
}

// ObserveUndecodable records how many objects of a kind cannot be decoded.
func (m *Meter) ObserveUndecodable(kind string, count int) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.undecodable[kind] = count
}

// CountDroppedEvent counts an Event about an object of this kind that exceeded the rate limit.
func (m *Meter) CountDroppedEvent(kind string) { m.dropped.WithLabelValues(kind).Inc() }
