package health

import (
	"maps"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/clusterpolicy/gpu-operator/internal/health/gpuhealth"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nvml"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/xid"
)

// descriptions are those of the metrics.
type descriptions struct {
	xids, sxids, unhealthy, watched, lost, writes                       *prometheus.Desc
	sessions, seconds, paused, problem, counted                         *prometheus.Desc
	uncorrected, sram, remapped, remapPending, remapFailed, action      *prometheus.Desc
	linkWidth, linkWidthMax, linkGen, linkGenMax, throttled, linksByWay *prometheus.Desc
}

func describe(node string) *descriptions {
	desc := func(name, help string, variable ...string) *prometheus.Desc {
		return prometheus.NewDesc("gpu_operator_node_"+name, help, variable, prometheus.Labels{"node": node})
	}
	d := &descriptions{
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
	d.sessions = desc("nvml_sessions_total", "Sessions with NVML, by their outcome: ok, or why one has shown nothing.",
		"outcome")
	d.seconds = desc("nvml_session_seconds", "How long the last session with NVML took.")
	d.paused = desc("nvml_paused", "1 while there are no sessions with NVML, for this reason.", "reason")
	d.problem = desc("nvml_problem", "1 while NVML or the driver does not work, for this reason.", "reason")
	d.counted = desc("nvml_gpus", "GPUs that NVML has counted last.")
	describeGPU(d, desc)
	return d
}

func describeGPU(d *descriptions, desc func(name, help string, variable ...string) *prometheus.Desc) {
	d.uncorrected = desc("gpu_ecc_uncorrected", "Uncorrected memory errors since the driver was loaded.", "pci")
	d.sram = desc("gpu_sram_threshold_exceeded", "1 if the errors of the SRAM call for a field diagnostic.", "pci")
	d.remapped = desc("gpu_remapped_rows", "Rows of the memory that were replaced, by the kind of error.", "pci", "kind")
	d.remapPending = desc("gpu_row_remap_pending", "1 if the next reset replaces a row of the memory.", "pci")
	d.remapFailed = desc("gpu_row_remap_failed", "1 if a row of the memory could not be replaced, ever.", "pci")
	d.action = desc("gpu_recovery_action", "What the GPU needs to recover, as NVML numbers it; 0 for nothing.", "pci")
	d.linkWidth = desc("gpu_pcie_link_width", "Lanes of the PCIe link.", "pci")
	d.linkWidthMax = desc("gpu_pcie_link_width_max", "Lanes that the PCIe link can have.", "pci")
	d.linkGen = desc("gpu_pcie_link_generation", "Generation of the PCIe link; lower while the GPU is idle.", "pci")
	d.linkGenMax = desc("gpu_pcie_link_generation_max", "Generation that the PCIe link can have.", "pci")
	d.throttled = desc("gpu_throttled_ratio", "Share of the last minutes in which heat or power slowed the GPU.", "pci")
	d.linksByWay = desc("gpu_nvlinks", "NVLinks of the GPU, by their state: up or down.", "pci", "state")
}

// Describe implements prometheus.Collector.
func (a *Agent) Describe(descs chan<- *prometheus.Desc) {
	m := a.metrics
	for _, desc := range []*prometheus.Desc{
		m.xids, m.sxids, m.unhealthy, m.watched, m.lost, m.writes, m.sessions, m.seconds, m.paused, m.problem, m.counted,
		m.uncorrected, m.sram, m.remapped, m.remapPending, m.remapFailed, m.action, m.linkWidth, m.linkWidthMax, m.linkGen,
		m.linkGenMax, m.throttled, m.linksByWay,
	} {
		descs <- desc
	}
}

// put writes one sample.
type put func(desc *prometheus.Desc, kind prometheus.ValueType, value float64, variable ...string)

// Collect implements prometheus.Collector.
func (a *Agent) Collect(metrics chan<- prometheus.Metric) {
	a.mu.Lock()
	defer a.mu.Unlock()
	put := put(func(desc *prometheus.Desc, kind prometheus.ValueType, value float64, variable ...string) {
		metrics <- prometheus.MustNewConstMetric(desc, kind, value, variable...)
	})
	put(a.metrics.lost, prometheus.CounterValue, float64(a.lost))
	put(a.metrics.writes, prometheus.CounterValue, float64(a.writes))
	a.collectSessions(put)
	if a.state == nil {
		return
	}
	for _, pci := range slices.Sorted(maps.Keys(a.state.devices)) {
		d := a.state.devices[pci]
		a.metrics.collectErrors(put, d)
		if d.nvml.last != nil {
			a.metrics.collectGPU(put, d)
		}
	}
}

func (a *Agent) collectSessions(put put) {
	for _, outcome := range slices.Sorted(maps.Keys(a.counted)) {
		put(a.metrics.sessions, prometheus.CounterValue, float64(a.counted[outcome]), outcome)
	}
	put(a.metrics.seconds, prometheus.GaugeValue, a.lastSession.Seconds())
	if a.pausedBy != "" {
		put(a.metrics.paused, prometheus.GaugeValue, 1, a.pausedBy)
	}
	if a.state == nil {
		return
	}
	put(a.metrics.counted, prometheus.GaugeValue, float64(a.state.driver.gpus))
	if noted := a.state.driver.noted; noted != nil {
		put(a.metrics.problem, prometheus.GaugeValue, 1, noted.Reason)
	}
}

func (m *descriptions) collectErrors(put put, d *device) {
	for number, count := range d.counts {
		if d.isSwitch {
			put(m.sxids, prometheus.CounterValue, float64(count), d.pci, number)
		} else {
			put(m.xids, prometheus.CounterValue, float64(count), d.pci, number, classOf(number))
		}
	}
	for _, note := range d.notes {
		if note.Class == gpuhealth.Watch {
			put(m.watched, prometheus.GaugeValue, 1, d.pci, note.Reason)
		}
	}
	if d.fault != nil {
		put(m.unhealthy, prometheus.GaugeValue, 1, d.pci, string(d.fault.Class), d.fault.Reason)
	}
}

// collectGPU writes what the last session has shown of the GPU.
func (m *descriptions) collectGPU(put put, d *device) {
	gauge := func(desc *prometheus.Desc, value float64, more ...string) {
		put(desc, prometheus.GaugeValue, value, append([]string{d.pci}, more...)...)
	}
	gpu := d.nvml.last
	if gpu.Uncorrected != nil {
		gauge(m.uncorrected, float64(*gpu.Uncorrected))
	}
	if gpu.SRAMExceeded != nil {
		gauge(m.sram, number(*gpu.SRAMExceeded))
	}
	if gpu.Action != nil {
		gauge(m.action, float64(*gpu.Action))
	}
	if remap := gpu.Remap; remap != nil {
		gauge(m.remapped, float64(remap.Correctable), "correctable")
		gauge(m.remapped, float64(remap.Uncorrectable), "uncorrectable")
		gauge(m.remapPending, number(remap.Pending))
		gauge(m.remapFailed, number(remap.Failed))
	}
	m.collectLinks(gauge, gpu)
	if all, share := d.nvml.throttling(); all > 0 {
		gauge(m.throttled, share)
	}
}

func (m *descriptions) collectLinks(gauge func(*prometheus.Desc, float64, ...string), gpu *nvml.GPU) {
	if link := gpu.Link; link != nil {
		gauge(m.linkWidth, float64(link.Width))
		gauge(m.linkWidthMax, float64(link.MaxWidth))
		gauge(m.linkGen, float64(link.Generation))
		gauge(m.linkGenMax, float64(link.MaxGeneration))
	}
	if links := gpu.NVLinks; links != nil {
		gauge(m.linksByWay, float64(links.Up), "up")
		gauge(m.linksByWay, float64(links.Down), "down")
	}
}

// number returns 1 for true.
func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// classOf returns the class of an Xid by the table; empty for several.
func classOf(number string) string {
	parsed, err := strconv.Atoi(number)
	if err != nil || parsed == xid.RecoveryAction {
		return ""
	}
	return string(xid.Lookup(parsed).Class)
}
