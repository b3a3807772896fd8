package main

import (
	"fmt"
	"strconv"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/units"

	"github.com/clusterpolicy/gpu-operator/internal/health/gpuhealth"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/xid"
)

const onNode = `node="$node"`

// node is the dashboard of one node.
func node() *dashboard.DashboardBuilder {
	names := fmt.Sprintf("%s or %s or %s", temperature.by(anywhere), own("node_metrics_ready_ts_seconds"),
		own("node_nvml_gpus"))
	b := board("node", "GPU node", "One GPU node: what is ready, how its GPUs are used, and what the kernel log, NVML "+
		"and DCGM say about their health. Use and errors need only the DCGM exporter.").
		WithVariable(listed("node", "Node", "node", names)).
		WithVariable(several("gpu", "GPU", "gpu", temperature.by(anywhere+", "+onNode)))
	for _, add := range []func(*dashboard.DashboardBuilder){nodeState, nodeUse, nodeHealth} {
		add(b)
	}
	return b
}

func nodeState(b *dashboard.DashboardBuilder) {
	ready := "From the node status exporter, which nodeStatusExporter.enabled installs."
	b.WithRow(section("Readiness")).
		WithPanel(states(panel{title: "Validated parts", about: "Which parts of the stack are validated. " + ready,
			unit: units.Short, width: 12, height: 6, queries: []query{
				{own("node_driver_ready", onNode), "driver"},
				{own("node_toolkit_ready", onNode), "toolkit"},
				{own("node_cuda_ready", onNode), "CUDA"},
				{own("node_plugin_ready", onNode), "device plugin"},
			}}, wanted, map[string]string{"0": "not validated", "1": "validated"})).
		WithPanel(bars(panel{title: "Duration of validation", about: "How long each part took, or has taken so far. " + ready,
			unit: units.Seconds, width: 4, height: 6, queries: []query{{own("node_stage_seconds", onNode), "{{stage}}"}}},
			neutral)).
		WithPanel(lastValue(panel{title: "GPUs", about: "On the PCI buses and in the node's capacity, from the node status " +
			"exporter; as NVML counts them, from the health agent; with series, from the DCGM exporter. MIG devices count in " +
			"the capacity.", unit: units.Short, width: 4, height: 6, queries: []query{
			{own("nvidia_pci_devices_total", onNode), "PCI"},
			{own("node_nvml_gpus", onNode), "NVML"},
			{own("node_device_plugin_devices_total", onNode), "capacity"},
			{"count(" + temperature.by(here) + ")", "DCGM"},
		}}, neutral)).
		WithPanel(rows(panel{title: "Why NVML is silent", about: "Why the health agent does not ask it, or gets no answer.",
			unit: units.Short, width: 4, height: 6, queries: []query{
				{own("node_nvml_paused", onNode) + " or " + own("node_nvml_problem", onNode), ""},
			}}, "", column{field: "reason", title: "Reason"}))
}

func nodeUse(b *dashboard.DashboardBuilder) {
	half := func(title, about, unit, legend, expression string) panel {
		return panel{title: title, about: about, unit: unit, width: 12, height: 8, queries: []query{{expression, legend}}}
	}
	const slice = "GPU {{gpu}} {{GPU_I_ID}}"
	b.WithRow(section("Use")).
		WithPanel(rows(panel{title: "GPUs", about: "GPUs and MIG slices, with the pod that holds them.", unit: units.Short,
			width: 24, height: 7, queries: []query{
				{usedByPod(here), ""},
				{memoryShare.by(here), ""},
				{temperature.by(here), ""},
				{power.by(here), ""},
			}}, "", column{field: "gpu", title: "GPU"}, column{field: "GPU_I_ID", title: "Slice"},
			column{field: "namespace", title: "Namespace"},
			column{field: "pod", title: "Pod"},
			column{field: "Value #A", title: "Utilisation", unit: units.PercentUnit, bar: 1},
			column{field: "Value #B", title: "Memory", unit: units.PercentUnit, bar: 1},
			column{field: "Value #C", title: "Temperature", unit: units.Celsius},
			column{field: "Value #D", title: "Power", unit: units.Watt})).
		WithPanel(history(half("Utilisation", "Share of time in which the engines of each GPU, or MIG slice, work.",
			units.PercentUnit, slice, utilisation.by(here)))).
		WithPanel(lines(half("Used memory", "Memory that is in use, without what the driver reserves.", units.BytesIEC,
			slice, memoryUsed.by(here)))).
		WithPanel(lines(limited(half("Temperature", "Temperature of each GPU. "+limitNeeded, units.Celsius, "GPU {{gpu}}",
			temperature.by(here)), temperatureLimit.by(here)))).
		WithPanel(lines(limited(half("Power", "What each GPU draws. "+limitNeeded, units.Watt, "GPU {{gpu}}",
			power.by(here)), powerLimit.by(here)))).
		WithPanel(bars(half("Energy", "What each GPU has used in the time of the dashboard.", units.WattHour, "GPU {{gpu}}",
			energy.increase(here)), neutral)).
		WithPanel(lines(half("NVLink", "What the links of each GPU carry.", units.BytesPerSecondIEC, "GPU {{gpu}}",
			nvlink.by(here)))).
		WithPanel(lines(half("Clock", "Clock of the multiprocessors.", units.Hertz, "GPU {{gpu}}", clock.by(here)))).
		WithPanel(lines(half("Memory temperature", "Temperature of the memory; not all products measure it.", units.Celsius,
			"GPU {{gpu}}", memoryTemp.by(here)))).
		WithPanel(lines(panel{title: "Tensor cores and memory", about: "Share of time in which the tensor cores and the " +
			"memory work: means of the node. Needs the profiling counters of DCGM.", unit: units.PercentUnit, width: 12,
			height: 8, queries: []query{
				{"avg(" + tensorActive.by(here) + ")", "tensor cores"}, {"avg(" + memoryActive.by(here) + ")", "memory"},
			}})).
		WithPanel(lines(panel{title: "PCIe traffic", about: "What all GPUs of the node send and receive. Needs the " +
			"profiling counters of DCGM.", unit: units.BytesPerSecondIEC, width: 12, height: 8, queries: []query{
			{"sum(" + pcieSent.by(here) + ")", "sent"}, {"sum(" + pcieReceived.by(here) + ")", "received"},
		}}))
}

const limitNeeded = "The limit is that of the GPU, if the exporter's list has it: see docs/monitoring.md."

// limited adds the lowest limit of the GPUs.
func limited(p panel, limits string) panel {
	p.queries = append(p.queries, query{"min(" + limits + ")", "limit"})
	return p
}

// What codes mean. NVML numbers what a GPU needs.
var (
	recovery = map[string]string{"0": "nothing", "1": "reset", "2": "reboot", "3": "drain its peers",
		"4": "drain and reset", "5": "recovery of the fabric"}
	yesNo = map[string]string{"0": "no", "1": "yes"}
)

// xidWords are the Xids after which someone has to act, or a GPU is watched, with their meaning. Others stay numbers.
func xidWords() map[string]string {
	all := map[string]string{"0": "none"}
	for _, rule := range xid.Table() {
		if rule.Class == gpuhealth.App {
			continue
		}
		for _, number := range rule.Numbers {
			all[strconv.Itoa(number)] = fmt.Sprintf("%d: %s", number, rule.Meaning)
		}
	}
	return all
}

func nodeHealth(b *dashboard.DashboardBuilder) {
	agent := func(name string) query { return query{"max by (pci) (" + own("node_"+name, onNode) + ")", ""} }
	b.WithRow(section("Health")).
		WithPanel(areas(panel{title: "Xid errors since boot", about: "Lines of the kernel log. From the health agent.",
			unit: units.Short, width: 8, height: 8, queries: []query{
				{"sum by (pci, xid) (" + own("node_gpu_xid_total", onNode) + ")", "{{pci}} Xid {{xid}}"},
			}})).
		WithPanel(rows(panel{title: "Findings", about: "Faults, with what is needed, and reasons to watch a GPU that works " +
			"(no class). From the health agent.", unit: units.Short, width: 8, height: 8, queries: []query{
			{own("node_gpu_unhealthy", onNode) + " or " + own("node_gpu_watched", onNode), ""},
		}}, "", column{field: "pci", title: "Device"}, column{field: "class", title: "Needs"},
			column{field: "reason", title: "Reason"})).
		WithPanel(rows(panel{title: "Counters of DCGM", about: "The last Xid, and PCIe packets that were sent again.",
			unit: units.Short, width: 8, height: 8, queries: []query{{lastXid.by(here), ""}, {replays.by(here), ""}}}, "",
			column{field: "gpu", title: "GPU"}, column{field: "Value #A", title: "Last Xid", words: xidWords()},
			column{field: "Value #B", title: "PCIe replays"})).
		WithPanel(lines(panel{title: "Memory errors", about: "Rows of the memory that were replaced, because of errors " +
			"that could be corrected or not, and uncorrected errors, if the exporter's list has them.", unit: units.Short,
			width: 24, height: 7, queries: []query{
				{remapped.by(here), "GPU {{gpu}} rows, uncorrectable"}, {repaired.by(here), "GPU {{gpu}} rows, correctable"},
				{uncorrected.by(here), "GPU {{gpu}} uncorrected errors"},
			}})).
		WithPanel(rows(panel{title: "State from NVML", about: "From the health agent. Throttled: share of ten minutes in " +
			"which heat or the power supply slowed the GPU.",
			unit: units.Short, width: 24, height: 7, queries: []query{
				agent("gpu_recovery_action"), agent("gpu_ecc_uncorrected"), agent("gpu_row_remap_pending"),
				agent("gpu_row_remap_failed"), agent("gpu_throttled_ratio"), agent("gpu_pcie_link_width"),
				agent("gpu_pcie_link_width_max"),
				{"sum by (pci) (" + own("node_gpu_nvlinks", onNode, `state="down"`) + ")", ""},
			}}, "", column{field: "pci", title: "Device"}, column{field: "Value #A", title: "Needs", words: recovery},
			column{field: "Value #B", title: "Uncorrected errors"},
			column{field: "Value #C", title: "Remap pending", words: yesNo},
			column{field: "Value #D", title: "Remap failed", words: yesNo},
			column{field: "Value #E", title: "Throttled", unit: units.PercentUnit},
			column{field: "Value #F", title: "PCIe lanes"}, column{field: "Value #G", title: "of"},
			column{field: "Value #H", title: "NVLinks down"}))
}
