package main

import (
	"fmt"
	"strings"
)

// recorded is a series of the recording rules, config/monitoring: one name and one unit for all releases of the
// exporter.
type recorded struct {
	name string
	// perSlice is true if a MIG slice has a value of its own.
	perSlice bool
}

var (
	utilisation = recorded{name: "gpu:utilization:ratio", perSlice: true}
	memoryShare = recorded{name: "gpu:memory_used:ratio", perSlice: true}
	memoryUsed  = recorded{name: "gpu:memory_used:bytes", perSlice: true}
	temperature = recorded{name: "gpu:temperature:celsius"}
	power       = recorded{name: "gpu:power:watts"}
	lastXid     = recorded{name: "gpu:xid_last:code"}
	uncorrected = recorded{name: "gpu:memory_errors_uncorrected:total"}
	// memoryActive needs the profiling counters of DCGM.
	memoryActive = recorded{name: "gpu:memory_active:ratio", perSlice: true}
)

// scraped is a metric of the DCGM exporter that no rule records, with the unit that its queries have.
type scraped struct {
	// old is its name until 4.8, and scale what makes its unit that of the query, such as "* 1000"; empty for none.
	old, scale string
	// renamed is its name from 4.9 on, and renamedScale as scale; empty if it is the same.
	renamed, renamedScale string
	// perSlice is true if a MIG slice has a value of its own. Others repeat that of the card on each slice.
	perSlice bool
}

const device, profiling = "DCGM_FI_DEV_", "DCGM_FI_PROF_"

// What the dashboards show of the exporter's default list beside the recorded series. Names, units and the pairs of old
// and new ones are those of the headers of DCGM 4.6 and 4.7 and of the exporter's default-counters.csv.
var (
	tensorActive = scraped{old: profiling + "PIPE_TENSOR_ACTIVE", renamed: profiling + "TENSOR_UTIL_RATIO", perSlice: true}
	pcieSent     = scraped{old: profiling + "PCIE_TX_BYTES"}
	pcieReceived = scraped{old: profiling + "PCIE_RX_BYTES"}
	memoryTemp   = scraped{old: device + "MEMORY_TEMP", renamed: device + "MEMORY_TEMP_CELSIUS"}
	clock        = scraped{old: device + "SM_CLOCK", scale: "* 1000000", renamed: device + "SM_CLOCK_HERTZ"}
	replays      = scraped{old: device + "PCIE_REPLAY_COUNTER", renamed: device + "PCIE_REPLAY_TOTAL"}
	remapped     = scraped{old: device + "UNCORRECTABLE_REMAPPED_ROWS", renamed: device + "ROW_REMAP_UNCORRECTABLE_TOTAL"}
	repaired     = scraped{old: device + "CORRECTABLE_REMAPPED_ROWS", renamed: device + "ROW_REMAP_CORRECTABLE_TOTAL"}
	nvlink       = scraped{old: device + "NVLINK_BANDWIDTH_TOTAL", scale: "* 1000000",
		renamed: device + "NVLINK_THROUGHPUT_BYTES_PER_SECOND"}
	// energy is in watt-hours: the exporter has millijoules, and joules from 4.9 on.
	energy = scraped{old: device + "TOTAL_ENERGY_CONSUMPTION", scale: "/ 3600000",
		renamed: device + "GPU_ENERGY_JOULES_TOTAL", renamedScale: "/ 3600"}
	// The default list does not have the limits: docs/monitoring.md has the lines to append.
	powerLimit       = scraped{old: device + "POWER_MGMT_LIMIT"}
	temperatureLimit = scraped{old: device + "SLOWDOWN_TEMP"}
)

// scope selects series by their labels.
type scope string

const (
	anywhere   scope = inCluster
	everywhere scope = inCluster + `, node=~"$node", modelName=~"$product"`
	here       scope = inCluster + `, ` + onNode + `, gpu=~"$gpu"`
	// ofTeams is for series of namespaces, and ofJob for those of pods.
	ofTeams scope = inCluster + `, namespace=~"$namespace"`
	ofJob   scope = inCluster + `, namespace=~"$namespace", pod=~"$pod"`
)

const inCluster = `cluster=~"$cluster"`

// Keys of what has a value of its own: a node, a card, a card or MIG slice, and one that a pod holds, as pods that
// share a card each have a series.
const (
	keyNode = "cluster, node"
	keyCard = "cluster, node, gpu"
	keyUnit = "cluster, node, gpu, GPU_I_ID"
	keyHeld = keyUnit + ", namespace, pod"
)

// by returns one value per card or, if each has its own, per MIG slice.
func (r recorded) by(in scope) string {
	return fmt.Sprintf("max by (%s) (%s)", keyOf(r.perSlice), of(r.name, in))
}

// of returns a recorded series.
func of(name string, in scope) string { return fmt.Sprintf("%s{%s}", name, in) }

func keyOf(perSlice bool) string {
	if perSlice {
		return keyUnit
	}
	return keyCard
}

// by returns one value per card or, if each has its own, per MIG slice.
func (s scraped) by(in scope) string {
	return fmt.Sprintf("max by (%s) (%s)", keyOf(s.perSlice), s.each(in, "%s"))
}

// increase returns how much a counter has grown in the time of the dashboard.
func (s scraped) increase(in scope) string {
	return fmt.Sprintf("max by (%s) (%s)", keyOf(s.perSlice), s.each(in, "increase(%s[$__range])"))
}

// each returns the series under each name, in the unit of the query, with the label node.
func (s scraped) each(in scope, function string) string {
	var terms []string
	for _, one := range []struct{ name, scale string }{{s.old, s.scale}, {s.renamed, s.renamedScale}} {
		for _, selector := range selectors(one.name, string(in)) {
			terms = append(terms, strings.TrimSpace(fmt.Sprintf(function, selector)+" "+one.scale))
		}
	}
	expression := strings.Join(terms, " or ")
	for _, label := range hostLabels {
		expression = fmt.Sprintf(`label_replace(%s, "node", "$1", "%s", "(.+)")`, expression, label)
	}
	return expression
}

// heldBy returns the units that the pods of the variables hold.
func heldBy() string {
	return fmt.Sprintf("max by (%s) (%s)", keyHeld, of("gpu_workload:utilization:ratio", ofJob))
}

// jobs returns the values of what the pods hold, once each: and adds no series, and no label.
func jobs(values string, perSlice bool) string {
	return fmt.Sprintf("%s and on (%s) %s", values, keyOf(perSlice), heldBy())
}

// usedByPod returns the utilisation of each unit with the labels namespace and pod of each pod that holds it; free ones
// have neither.
func usedByPod(in scope) string {
	return fmt.Sprintf("max by (%s) (%s) or on (%s) %s",
		keyHeld, of("gpu_workload:utilization:ratio", in), keyUnit, utilisation.by(in))
}

// distribution counts the elements of a vector by steps, each named after its lower bound. Steps without an element
// have the value 0, as the rows of a heat map are the series that it gets, unless the vector is empty.
func distribution(expression string, step, lowest, highest int) string {
	text := fmt.Sprintf(`count_values("from", clamp(floor(%s / %d) * %d, %d, %d))`,
		expression, step, step, lowest, highest)
	for from := lowest; from <= highest; from += step {
		text += fmt.Sprintf(` or label_replace(0 * count(%s), "from", "%d", "", "")`, expression, from)
	}
	return text
}

// own returns a metric of the operator or of its node programs: gpu_operator_NAME.
func own(name string, matchers ...string) string {
	return fmt.Sprintf("gpu_operator_%s{%s}", name, strings.Join(append([]string{inCluster}, matchers...), ", "))
}
