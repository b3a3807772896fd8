package health

import (
	"maps"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/xid"
)

// descriptions are those of the metrics.
type descriptions struct {
	xids, sxids, unhealthy, watched, lost, writes *prometheus.Desc
}

func describe(node string) *descriptions {
	desc := func(name, help string, variable ...string) *prometheus.Desc {
		return prometheus.NewDesc("gpu_operator_node_"+name, help, variable, prometheus.Labels{"node": node})
	}
	return &descriptions{
		xids: desc("gpu_xid_total", "Lines of the kernel log about Xid errors of the GPU, in this boot as far as the log "+
			"goes back.", "pci", "xid", "class"),
		sxids: desc("nvswitch_sxid_total", "Lines of the kernel log about SXid errors of the NVSwitch, in this boot as far "+
			"as the log goes back.", "pci", "sxid"),
		unhealthy: desc("gpu_unhealthy", "1 for each GPU or NVSwitch that needs a reset, a reboot or a person.",
			"pci", "class", "reason"),
		watched: desc("gpu_watched", "1 for each reason to watch a GPU that works.", "pci", "reason"),
		lost:    desc("kernel_log_gaps_total", "How often the kernel has overwritten records that were not read yet."),
		writes:  desc("gpu_health_writes_total", "Requests to write the annotation of the Node, including failed ones."),
	}
}

// Describe implements prometheus.Collector.
func (a *Agent) Describe(descs chan<- *prometheus.Desc) {
	m := a.metrics
	for _, desc := range []*prometheus.Desc{m.xids, m.sxids, m.unhealthy, m.watched, m.lost, m.writes} {
		descs <- desc
	}
}

// Collect implements prometheus.Collector.
func (a *Agent) Collect(metrics chan<- prometheus.Metric) {
	a.mu.Lock()
	defer a.mu.Unlock()
	put := func(desc *prometheus.Desc, kind prometheus.ValueType, value int, variable ...string) {
		metrics <- prometheus.MustNewConstMetric(desc, kind, float64(value), variable...)
	}
	put(a.metrics.lost, prometheus.CounterValue, a.lost)
	put(a.metrics.writes, prometheus.CounterValue, a.writes)
	if a.state == nil {
		return
	}
	for _, pci := range slices.Sorted(maps.Keys(a.state.devices)) {
		d := a.state.devices[pci]
		for number, count := range d.counts {
			if d.isSwitch {
				put(a.metrics.sxids, prometheus.CounterValue, count, pci, number)
			} else {
				put(a.metrics.xids, prometheus.CounterValue, count, pci, number, classOf(number))
			}
		}
		for reason := range d.watched {
			put(a.metrics.watched, prometheus.GaugeValue, 1, pci, reason)
		}
		if d.fault != nil {
			put(a.metrics.unhealthy, prometheus.GaugeValue, 1, pci, string(d.fault.Class), d.fault.Reason)
		}
	}
}

// classOf returns the class of an Xid by the table; empty for several.
func classOf(number string) string {
	parsed, err := strconv.Atoi(number)
	if err != nil || parsed == xid.RecoveryAction {
		return ""
	}
	return string(xid.Lookup(parsed).Class)
}
