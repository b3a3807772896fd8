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
)

// scraped is a metric of the DCGM exporter that no rule records, with the unit that its queries have.
type scraped struct {
	// old is its name until 4.8, and scale what makes its unit that of the query, such as "* 1000"; empty for none.
	old, scale string
	// renamed is its name from 4.9 on, in the unit of the query; empty if it is the same.
	renamed string
	// perSlice is true if a MIG slice has a value of its own. Others repeat that of the card on each slice.
	perSlice bool
}

const device, profiling = "DCGM_FI_DEV_", "DCGM_FI_PROF_"

// What the dashboards show of the exporter's default list beside the recorded series. Names, units and the pairs of old
// and new ones are those of the headers of DCGM 4.6 and 4.7 and of the exporter's default-counters.csv.
var (
	tensorActive = scraped{old: profiling + "PIPE_TENSOR_ACTIVE", renamed: profiling + "TENSOR_UTIL_RATIO", perSlice: true}
	memoryActive = scraped{old: profiling + "DRAM_ACTIVE", renamed: profiling + "DRAM_UTIL_RATIO", perSlice: true}
	pcieSent     = scraped{old: profiling + "PCIE_TX_BYTES"}
	pcieReceived = scraped{old: profiling + "PCIE_RX_BYTES"}
	memoryTemp   = scraped{old: device + "MEMORY_TEMP", renamed: device + "MEMORY_TEMP_CELSIUS"}
	clock        = scraped{old: device + "SM_CLOCK", scale: "* 1000000", renamed: device + "SM_CLOCK_HERTZ"}
	replays      = scraped{old: device + "PCIE_REPLAY_COUNTER", renamed: device + "PCIE_REPLAY_TOTAL"}
)

// scope selects series: those of all nodes, or of the node of the variable node.
type scope bool

const (
	everywhere scope = false
	here       scope = true
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

// of returns a recorded series that has the label node.
func of(name string, in scope) string {
	if in == here {
		return fmt.Sprintf("%s{%s, %s}", name, inCluster, onNode)
	}
	return fmt.Sprintf("%s{%s}", name, inCluster)
}

func keyOf(perSlice bool) string {
	if perSlice {
		return keyUnit
	}
	return keyCard
}

// by returns one value per card or, if each has its own, per MIG slice, of the node of the variable node. The label of
// the node is hostname, until the exporter's release 4.8.2 Hostname.
func (s scraped) by() string {
	terms := []string{
		fmt.Sprintf(`%s{%s, hostname="$node"} %s`, s.old, inCluster, s.scale),
		fmt.Sprintf(`%s{%s, Hostname="$node"} %s`, s.old, inCluster, s.scale),
	}
	if s.renamed != "" {
		terms = append(terms, fmt.Sprintf(`%s{%s, hostname="$node"}`, s.renamed, inCluster))
	}
	for i := range terms {
		terms[i] = strings.TrimSpace(terms[i])
	}
	expression := strings.Join(terms, " or ")
	for _, label := range []string{"Hostname", "hostname"} {
		expression = fmt.Sprintf(`label_replace(%s, "node", "$1", "%s", "(.+)")`, expression, label)
	}
	return fmt.Sprintf("max by (%s) (%s)", keyOf(s.perSlice), expression)
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
