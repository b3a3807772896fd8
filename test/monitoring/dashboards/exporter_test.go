package dashboards

import (
	"fmt"
	"math"
	"strings"
)

// release is a release of the DCGM exporter, as far as it concerns queries.
type release struct {
	// hostname is the label of the node, and driver that of the driver's version.
	hostname, driver string
	// renamed: the names and units are those of 4.9.
	renamed bool
}

var (
	release482 = release{hostname: "Hostname", driver: "DCGM_FI_DRIVER_VERSION"}
	release483 = release{hostname: "hostname", driver: "DCGM_FI_DRIVER_VERSION"}
	release490 = release{hostname: "hostname", driver: "DCGM_FI_SYSTEM_DRIVER_VERSION", renamed: true}
)

// field is a row of the exporter's default list.
type field struct {
	// old and renamed are the names until 4.8 and from 4.9 on. scale converts the value to the new unit.
	old, renamed string
	scale        float64
	kind         string
	// slices: MIG slices have values of their own. notMIG: cards in MIG mode have none.
	slices, notMIG bool
	value          func(load) float64
}

// load is what a GPU does.
type load struct{ util, memory, temperature, power, energy, xid float64 }

// total is the memory of a card in MiB.
const total = 81559

// fields is the default list, in the order of default-counters.csv of the exporter. It has the profiling fields that
// dcp-metrics-included.csv adds, the file that GPU operators select.
var fields = []field{
	{old: "DEV_SM_CLOCK", renamed: "DEV_SM_CLOCK_HERTZ", scale: 1e6, kind: "gauge",
		value: func(l load) float64 { return 345 + math.Round(l.util*109)*15 }},
	{old: "DEV_MEM_CLOCK", renamed: "DEV_MEMORY_CLOCK_HERTZ", scale: 1e6, kind: "gauge",
		value: func(load) float64 { return 2619 }},
	{old: "DEV_MEMORY_TEMP", renamed: "DEV_MEMORY_TEMP_CELSIUS", scale: 1, kind: "gauge",
		value: func(l load) float64 { return math.Round(l.temperature + 8) }},
	{old: "DEV_GPU_TEMP", renamed: "DEV_GPU_TEMP_CELSIUS", scale: 1, kind: "gauge",
		value: func(l load) float64 { return math.Round(l.temperature) }},
	{old: "DEV_POWER_USAGE", renamed: "DEV_BOARD_POWER_WATTS", scale: 1, kind: "gauge",
		value: func(l load) float64 { return l.power }},
	{old: "DEV_TOTAL_ENERGY_CONSUMPTION", renamed: "DEV_GPU_ENERGY_JOULES_TOTAL", scale: 1e-3, kind: "counter",
		value: func(l load) float64 { return l.energy * 1e3 }},
	{old: "DEV_PCIE_REPLAY_COUNTER", renamed: "DEV_PCIE_REPLAY_TOTAL", scale: 1, kind: "counter",
		value: func(load) float64 { return 0 }},
	{old: "DEV_GPU_UTIL", renamed: "DEV_GPU_UTIL_RATIO", scale: 1e-2, kind: "gauge", notMIG: true,
		value: func(l load) float64 { return math.Round(l.util * 100) }},
	{old: "DEV_MEM_COPY_UTIL", renamed: "DEV_MEMORY_UTIL_RATIO", scale: 1e-2, kind: "gauge", notMIG: true,
		value: func(l load) float64 { return math.Round(l.util * 40) }},
	{old: "DEV_ENC_UTIL", renamed: "DEV_ENC_UTIL_RATIO", scale: 1e-2, kind: "gauge", notMIG: true,
		value: func(load) float64 { return 0 }},
	{old: "DEV_DEC_UTIL", renamed: "DEV_DEC_UTIL_RATIO", scale: 1e-2, kind: "gauge", notMIG: true,
		value: func(load) float64 { return 0 }},
	{old: "DEV_XID_ERRORS", renamed: "DEV_XID_ERROR", scale: 1, kind: "gauge",
		value: func(l load) float64 { return l.xid }},
	{old: "DEV_FB_FREE", renamed: "DEV_FB_FREE_BYTES", scale: 1 << 20, kind: "gauge", slices: true,
		value: func(l load) float64 { return math.Round((total - 600) * (1 - l.memory)) }},
	{old: "DEV_FB_USED", renamed: "DEV_FB_USED_BYTES", scale: 1 << 20, kind: "gauge", slices: true,
		value: func(l load) float64 { return math.Round((total - 600) * l.memory) }},
	{old: "DEV_FB_RESERVED", renamed: "DEV_FB_RESERVED_BYTES", scale: 1 << 20, kind: "gauge", slices: true,
		value: func(load) float64 { return 600 }},
	{renamed: "DEV_FB_CAPACITY_BYTES", scale: 1 << 20, kind: "gauge", slices: true,
		value: func(load) float64 { return total }},
	{old: "DEV_UNCORRECTABLE_REMAPPED_ROWS", renamed: "DEV_ROW_REMAP_UNCORRECTABLE_TOTAL", scale: 1, kind: "counter",
		value: func(load) float64 { return 0 }},
	{old: "DEV_CORRECTABLE_REMAPPED_ROWS", renamed: "DEV_ROW_REMAP_CORRECTABLE_TOTAL", scale: 1, kind: "counter",
		value: func(load) float64 { return 0 }},
	{old: "DEV_ROW_REMAP_FAILURE", renamed: "DEV_ROW_REMAP_FAILED", scale: 1, kind: "gauge",
		value: func(load) float64 { return 0 }},
	{old: "DEV_NVLINK_BANDWIDTH_TOTAL", renamed: "DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND", scale: 1e6, kind: "gauge",
		value: func(l load) float64 { return math.Round(l.util * 9000) }},
	{old: "DEV_VGPU_LICENSE_STATUS", renamed: "DEV_VGPU_LICENSE_STATUS", scale: 1, kind: "gauge",
		value: func(load) float64 { return 0 }},
	// Rows that docs/monitoring.md appends to the list.
	{old: "DEV_POWER_MGMT_LIMIT", renamed: "DEV_POWER_MGMT_LIMIT", scale: 1, kind: "gauge",
		value: func(load) float64 { return 700 }},
	{old: "DEV_SLOWDOWN_TEMP", renamed: "DEV_SLOWDOWN_TEMP", scale: 1, kind: "gauge",
		value: func(load) float64 { return 87 }},
	{old: "DEV_ECC_DBE_VOL_TOTAL", renamed: "DEV_ECC_DBE_VOL_TOTAL", scale: 1, kind: "counter",
		value: func(l load) float64 { return map[bool]float64{true: 2}[l.xid > 0] }},
	{old: "PROF_GR_ENGINE_ACTIVE", renamed: "PROF_GR_ENGINE_UTIL_RATIO", scale: 1, kind: "gauge", slices: true,
		value: func(l load) float64 { return l.util }},
	{old: "PROF_PIPE_TENSOR_ACTIVE", renamed: "PROF_TENSOR_UTIL_RATIO", scale: 1, kind: "gauge", slices: true,
		value: func(l load) float64 { return l.util * 0.45 }},
	{old: "PROF_DRAM_ACTIVE", renamed: "PROF_DRAM_UTIL_RATIO", scale: 1, kind: "gauge", slices: true,
		value: func(l load) float64 { return l.util * 0.55 }},
	{old: "PROF_PCIE_TX_BYTES", renamed: "PROF_PCIE_TX_BYTES", scale: 1, kind: "gauge",
		value: func(l load) float64 { return math.Round(l.util * 1.6e9) }},
	{old: "PROF_PCIE_RX_BYTES", renamed: "PROF_PCIE_RX_BYTES", scale: 1, kind: "gauge",
		value: func(l load) float64 { return math.Round(l.util * 4.1e9) }},
}

// name returns the name in a release, empty if it does not have the field by default.
func (f field) name(r release) string {
	name := f.old
	if r.renamed {
		name = f.renamed
	}
	if name == "" {
		return ""
	}
	return "DCGM_FI_" + name
}

// unit is a GPU, or one of its MIG slices.
type unit struct {
	gpu              int
	profile, sliceID string
	// team and pod hold it; both are empty if it is free.
	team, pod string
	load
}

// exposition is the answer of an exporter.
func exposition(node string, r release, units []unit) string {
	text := strings.Builder{}
	for _, f := range fields {
		name := f.name(r)
		if name == "" {
			continue
		}
		fmt.Fprintf(&text, "# HELP %s As DCGM describes it.\n# TYPE %s %s\n", name, name, f.kind)
		for _, u := range units {
			if f.notMIG && u.profile != "" {
				continue
			}
			value := f.value(u.load)
			if r.renamed {
				value *= f.scale
			}
			fmt.Fprintf(&text, "%s{%s} %g\n", name, u.labels(node, r, strings.HasPrefix(f.old, "DEV_XID")), value)
		}
	}
	return text.String()
}

// labels returns those of a series.
func (u unit) labels(node string, r release, xid bool) string {
	list := fmt.Sprintf(`gpu="%d",UUID="GPU-%s-%d",pci_bus_id="00000000:%02X:00.0",device="nvidia%d",`+
		`modelName="NVIDIA H100 80GB HBM3",%s="%s",%s="595.91.07"`,
		u.gpu, node, u.gpu, 7+u.gpu, u.gpu, r.hostname, node, r.driver)
	if u.profile != "" {
		list += fmt.Sprintf(`,GPU_I_PROFILE="%s",GPU_I_ID="%s"`, u.profile, u.sliceID)
	}
	if u.pod != "" {
		list += fmt.Sprintf(`,container="main",namespace="%s",pod="%s"`, u.team, u.pod)
	}
	if xid {
		list += fmt.Sprintf(`,err_code="%g",err_msg="text"`, u.xid)
	}
	return list
}
