package main

import (
	"fmt"
	"strings"
)

// series is a metric of the DCGM exporter, with the unit that its queries have.
type series struct {
	// old is its name until 4.8, and scale what makes its unit that of the query, such as "/ 100"; empty for none.
	old, scale string
	// renamed is its name from 4.9 on, in the unit of the query; empty if it is the same.
	renamed string
	// perSlice is true if a MIG slice has a value of its own. Others repeat that of the card on each slice.
	perSlice bool
}

const device, profiling = "DCGM_FI_DEV_", "DCGM_FI_PROF_"

// The default list of the exporter, as far as the dashboards show it. Names, units and the pairs of old and new ones
// are those of the headers of DCGM 4.6 and 4.7 and of the exporter's default-counters.csv.
var (
	engineActive = series{old: profiling + "GR_ENGINE_ACTIVE", renamed: profiling + "GR_ENGINE_UTIL_RATIO", perSlice: true}
	tensorActive = series{old: profiling + "PIPE_TENSOR_ACTIVE", renamed: profiling + "TENSOR_UTIL_RATIO", perSlice: true}
	memoryActive = series{old: profiling + "DRAM_ACTIVE", renamed: profiling + "DRAM_UTIL_RATIO", perSlice: true}
	pcieSent     = series{old: profiling + "PCIE_TX_BYTES"}
	pcieReceived = series{old: profiling + "PCIE_RX_BYTES"}

	gpuUtil     = series{old: device + "GPU_UTIL", scale: "/ 100", renamed: device + "GPU_UTIL_RATIO"}
	memoryUsed  = series{old: device + "FB_USED", scale: mebi, renamed: device + "FB_USED_BYTES", perSlice: true}
	memoryFree  = series{old: device + "FB_FREE", scale: mebi, renamed: device + "FB_FREE_BYTES", perSlice: true}
	temperature = series{old: device + "GPU_TEMP", renamed: device + "GPU_TEMP_CELSIUS"}
	memoryTemp  = series{old: device + "MEMORY_TEMP", renamed: device + "MEMORY_TEMP_CELSIUS"}
	power       = series{old: device + "POWER_USAGE", renamed: device + "BOARD_POWER_WATTS"}
	clock       = series{old: device + "SM_CLOCK", scale: mega, renamed: device + "SM_CLOCK_HERTZ"}
	lastXid     = series{old: device + "XID_ERRORS", renamed: device + "XID_ERROR"}
	replays     = series{old: device + "PCIE_REPLAY_COUNTER", renamed: device + "PCIE_REPLAY_TOTAL"}
)

const mebi, mega = "* 1048576", "* 1000000"

// scope selects series of the exporter.
type scope struct {
	// oneNode selects the node of the variable node instead of all nodes.
	oneNode bool
	// window makes each value the average of this time; empty for the current value.
	window string
}

var (
	everywhere = scope{}
	here       = scope{oneNode: true}
)

const inCluster = `cluster=~"$cluster"`

// select returns the samples of a metric, with the labels as the exporter and Prometheus have written them. The label
// of the node is hostname, until the exporter's release 4.8.2 Hostname.
func (s series) selected(in scope) string {
	var terms []string
	term := func(name, scale, label string) {
		text := fmt.Sprintf("%s{%s%s}", name, inCluster, label)
		if in.window != "" {
			text = fmt.Sprintf("avg_over_time(%s[%s])", text, in.window)
		}
		terms = append(terms, strings.TrimSpace(text+" "+scale))
	}
	labels := []string{""}
	if in.oneNode {
		labels = []string{`, hostname="$node"`, `, Hostname="$node"`}
	}
	for _, label := range labels {
		term(s.old, s.scale, label)
	}
	if s.renamed != "" {
		term(s.renamed, "", labels[0])
	}
	return strings.Join(terms, " or ")
}

// named returns an expression with the label node, made of the exporter's own.
func named(expression string) string {
	for _, label := range []string{"Hostname", "hostname"} {
		expression = fmt.Sprintf(`label_replace(%s, "node", "$1", "%s", "(.+)")`, expression, label)
	}
	return expression
}

// held returns an expression with the label workload, NAMESPACE/POD of the pod that holds the GPU, which is absent on
// free ones, and team, its namespace or "(free)". Without honorLabels Prometheus has moved the exporter's labels of the
// pod to exported_*, and pod and namespace are those of the exporter; with honorLabels only a free GPU has these.
func held(expression string) string {
	expression = fmt.Sprintf(`label_join(%s, "holder", "/", "exported_namespace", "exported_pod", "namespace", "pod")`,
		expression)
	for _, rule := range []struct{ to, replacement, from, pattern string }{
		{"workload", "$1", "holder", "//([^/]+/[^/]+)"},
		{"workload", "", "holder", "//[^/]*/nvidia-dcgm-exporter.*"},
		{"workload", "$1", "holder", "([^/]+/[^/]+)/.*"},
		{"team", "(free)", "holder", ".*"},
		{"team", "$1", "workload", "([^/]+)/.*"},
	} {
		expression = fmt.Sprintf(`label_replace(%s, "%s", "%s", "%s", "%s")`,
			expression, rule.to, rule.replacement, rule.from, rule.pattern)
	}
	return expression
}

// Keys of what has a value of its own: a node, a card, a card or MIG slice, and one that a pod holds, as sharing pods
// each have a series.
const (
	keyNode = "cluster, node"
	keyCard = "cluster, node, gpu"
	keyUnit = "cluster, node, gpu, GPU_I_ID"
	keyHeld = keyUnit + ", team, workload"
)

// by returns one value per card or, if each has its own, per MIG slice, without the exporter's other labels.
func (s series) by(in scope) string {
	key := keyCard
	if s.perSlice {
		key = keyUnit
	}
	return fmt.Sprintf("max by (%s) (%s)", key, named(s.selected(in)))
}

// utilisation returns the share of time in which each unit works: that of the engines, which MIG slices have too, or
// where the exporter has no profiling that of the card.
func utilisation(in scope) string {
	return fmt.Sprintf("(max by (%[1]s) (%[2]s) or max by (%[1]s) (%[3]s))",
		keyUnit, named(engineActive.selected(in)), named(gpuUtil.selected(in)))
}

// utilisationHeld is utilisation by pod that holds the unit.
func utilisationHeld(in scope) string {
	return fmt.Sprintf("(max by (%[1]s) (%[2]s) or max by (%[1]s) (%[3]s))",
		keyHeld, held(named(engineActive.selected(in))), held(named(gpuUtil.selected(in))))
}

// memoryShare returns the used share of the memory that pods can use.
func memoryShare(in scope) string {
	return fmt.Sprintf("(%[1]s / (%[1]s + %[2]s))", memoryUsed.by(in), memoryFree.by(in))
}

// share returns the part of a card that each unit is: its MIG slices, or the pods that share it, are equal parts.
// The units have to be a vector with one element per unit.
func shared(value, units string) string {
	return fmt.Sprintf("%s / on (%s) group_left () count by (%s) (%s)", value, keyCard, keyCard, units)
}

// distribution counts the elements of a vector by steps, each named after its lower bound. Steps without an element
// have the value 0: the rows of a heat map are the series that it gets.
func distribution(expression string, step, lowest, highest int) string {
	text := fmt.Sprintf(`count_values("from", clamp(floor(%s / %d) * %d, %d, %d))`,
		expression, step, step, lowest, highest)
	for from := lowest; from <= highest; from += step {
		text += fmt.Sprintf(` or label_replace(vector(0), "from", "%d", "", "")`, from)
	}
	return text
}

// own returns a metric of the operator or of its node programs: gpu_operator_NAME.
func own(name string, matchers ...string) string {
	return fmt.Sprintf("gpu_operator_%s{%s}", name, strings.Join(append([]string{inCluster}, matchers...), ", "))
}
