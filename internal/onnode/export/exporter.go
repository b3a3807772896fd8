package export

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/pci"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/validate"
)

const (
	// DefaultPort is the port of NVIDIA's exporter, and of the Service.
	DefaultPort = 8000
	// DefaultDriverInterval is the time between the starts of two checks of the driver.
	DefaultDriverInterval = time.Minute
	// DefaultDriverTimeout limits one check of the driver.
	DefaultDriverTimeout = 50 * time.Second
)

// DefaultMarkers are the exported markers, in the order in which they are written on a node.
var DefaultMarkers = []labels.Marker{labels.MarkerDriver, labels.MarkerToolkit, labels.MarkerCUDA, labels.MarkerPlugin}

// Options configure an Exporter.
type Options struct {
	// Node is the name of the node, the label of all metrics.
	Node string
	// Markers is the directory of the markers.
	Markers marker.Dir
	// Validated are the markers of gpu_operator_node_stage_seconds that are written on this node, in order.
	Validated []labels.Marker
	// SysRoot is where sysfs is mounted here.
	SysRoot string
	// CheckDriver is called every DriverInterval and may take DriverTimeout.
	CheckDriver                   validate.Check
	DriverInterval, DriverTimeout time.Duration
	// Resources returns the resources of the Node.
	Resources func(ctx context.Context) (nodeapi.Resources, error)
	// Log gets a line for each new reason why something is unknown.
	Log *slog.Logger
}

// Exporter is a prometheus.Collector.
type Exporter struct {
	options   Options
	begun     time.Time
	durations *durations
	driver    *driver
	devices   *devices
	reasons   *reasons

	metrics map[string]*prometheus.Desc
	took    *prometheus.Desc
}

// The metrics whose only label is the node.
const (
	metricsReady      = "gpu_operator_node_metrics_ready_ts_seconds"
	driverValidation  = "gpu_operator_node_driver_validation"
	driverLastSuccess = "gpu_operator_node_driver_validation_last_success_ts_seconds"
	pluginDevices     = "gpu_operator_node_device_plugin_devices_total"
	pluginLastSuccess = "gpu_operator_node_device_plugin_validation_last_success_ts_seconds"
	pciDevices        = "gpu_operator_nvidia_pci_devices_total"
)

// stageSeconds has the name of the marker as another label, which is called stage.
const stageSeconds = "gpu_operator_node_stage_seconds"

var help = map[string]string{
	metricsReady:     "Time at which this exporter was started, in seconds since 1970.",
	driverValidation: "1 if the last check of the driver on this node succeeded, else 0.",
	driverLastSuccess: "Time of the last successful check of the driver on this node, in seconds since 1970; " +
		"0 for never.",
	pluginDevices: "GPUs and MIG devices in the capacity of this Node; -1 if it cannot be read.",
	pluginLastSuccess: "Last time at which this Node had GPUs in its capacity, in seconds since 1970; " +
		"0 for never.",
	pciDevices:                        "NVIDIA GPUs on the PCI buses of this node; -1 if they cannot be counted.",
	readyMetric(labels.MarkerDriver):  "1 if the driver is validated on this node, else 0.",
	readyMetric(labels.MarkerToolkit): "1 if the container toolkit is validated on this node, else 0.",
	readyMetric(labels.MarkerCUDA):    "1 if CUDA is validated on this node, else 0.",
	readyMetric(labels.MarkerPlugin):  "1 if the device plugin is validated on this node, else 0.",
}

// readyMetric returns the name of the metric that is 1 while the marker is valid.
func readyMetric(m labels.Marker) string { return "gpu_operator_node_" + string(m) + "_ready" }

// New returns an exporter; Run runs its checks.
func New(options Options) *Exporter {
	begun := time.Now()
	reasons := &reasons{log: options.Log, last: map[string]string{}}
	e := &Exporter{
		options:   options,
		begun:     begun,
		durations: newDurations(options.Validated, begun),
		driver: &driver{
			check:   options.CheckDriver,
			every:   options.DriverInterval,
			timeout: options.DriverTimeout,
			log:     reasons,
		},
		devices: &devices{resources: options.Resources, log: reasons},
		reasons: reasons,
		metrics: map[string]*prometheus.Desc{},
	}
	node := prometheus.Labels{"node": options.Node}
	for name, text := range help {
		e.metrics[name] = prometheus.NewDesc(name, text, nil, node)
	}
	e.took = prometheus.NewDesc(stageSeconds,
		"How long the validation of a part of the stack took or, while its marker is missing, has taken so far, in seconds.",
		[]string{"stage"}, node)
	return e
}

// Run checks the driver until ctx ends.
func (e *Exporter) Run(ctx context.Context) { e.driver.run(ctx) }

// Describe implements prometheus.Collector.
func (e *Exporter) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range e.metrics {
		descs <- desc
	}
	descs <- e.took
}

// Collect implements prometheus.Collector. It reads the current state.
func (e *Exporter) Collect(metrics chan<- prometheus.Metric) {
	now := time.Now()
	gauge := func(name string, value float64) {
		metrics <- prometheus.MustNewConstMetric(e.metrics[name], prometheus.GaugeValue, value)
	}
	gauge(metricsReady, seconds(e.begun))
	e.collectMarkers(metrics, now, gauge)
	works, known, workedAt := e.driver.result()
	if known {
		gauge(driverValidation, number(works))
	}
	gauge(driverLastSuccess, seconds(workedAt))
	count, countedAt := e.devices.count(now)
	gauge(pluginDevices, float64(count))
	gauge(pluginLastSuccess, seconds(countedAt))
	gauge(pciDevices, e.countPCIGPUs())
}

// collectMarkers exports the markers, and how long each validation took.
func (e *Exporter) collectMarkers(metrics chan<- prometheus.Metric, now time.Time, gauge func(string, float64)) {
	found := map[labels.Marker]*validation{}
	for _, m := range DefaultMarkers {
		found[m] = read(e.options.Markers, m)
		gauge(readyMetric(m), number(found[m] != nil))
	}
	e.durations.track(found, now)
	for m, duration := range e.durations.of(found, now) {
		metrics <- prometheus.MustNewConstMetric(e.took, prometheus.GaugeValue, duration.Seconds(), string(m))
	}
}

// countPCIGPUs counts the GPUs on the PCI buses.
func (e *Exporter) countPCIGPUs() float64 {
	found, err := pci.Devices(e.options.SysRoot)
	e.reasons.note("the GPUs on the PCI buses cannot be counted", err)
	if err != nil {
		return unknown
	}
	count := 0.0
	for _, device := range found {
		if device.IsGPU() {
			count++
		}
	}
	return count
}

func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// seconds returns the seconds since 1970; 0 for the zero time.
func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}
