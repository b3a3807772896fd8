package main

// name identifies a figure.
type name string

// Figures that are compared: with that of NVIDIA's operator, or with another figure.
const (
	readyTime name = "ready"
	floorTime name = "floor"
	bareTime  name = "bare"
	// labellingFloorTime is the floor on nodes that a plain loop labels.
	labellingFloorTime name = "labelling floor"
	cpuToReady         name = "cpu"
	peakMemory         name = "memory"
	readyWrites        name = "ready writes"
	after90            name = "after ready"
	brokenMin          name = "broken minute"
	nodeJoin           name = "join"
	podLoss            name = "pod"
	restarted          name = "restart"
	noOpWrites         name = "no-op writes"
	// Figures of runs that alternate with floors.
	watchedReady  name = "watched ready"
	watchedCPU    name = "watched cpu"
	watchedMemory name = "watched memory"
	watchedWrites name = "watched writes"
	watchedLate   name = "watched after ready"
	// other figures are not compared.
	other name = ""
)

// theirs are figures of NVIDIA's operator (commit a22dbf67), by the number of nodes. They were measured once with the
// same type of machine, control plane and simulated nodes; see docs/benchmarks.md.
var theirs = map[name]map[int]string{
	readyTime:   {100: "13 to 15 s", 1000: "159 s"},
	bareTime:    {100: "6.4 s", 1000: "71 s"},
	cpuToReady:  {100: "1.8 s", 1000: "15.1 s"},
	peakMemory:  {100: "95 MB", 1000: "453 MB"},
	readyWrites: {100: "618", 1000: "3,741"},
	after90:     {1000: "29,426"},
	brokenMin:   {100: "4,239"},
	nodeJoin:    {100: "299", 1000: "3,152"},
	podLoss:     {100: "294"},
	restarted:   {100: "147"},
	noOpWrites:  {100: "80 to 150"},
}

// theirsFast are the same for the fast stages.
var theirsFast = map[name]map[int]string{
	watchedReady:  {100: "12.2 s", 1000: "144.2 s"},
	watchedCPU:    {100: "1.61 s", 1000: "14.4 s"},
	watchedMemory: {100: "100 MB", 1000: "402 MB"},
	watchedWrites: {100: "617", 1000: "3,599"},
	watchedLate:   {1000: "18,605"},
}

// theirsOf returns the figure of NVIDIA's operator to compare with; empty if there is none.
func theirsOf(how stages, name name, nodes int) string {
	if how.byKwok() {
		return theirsFast[name][nodes]
	}
	return theirs[name][nodes]
}

// Goals.
const (
	// ratioLimit is the limit for the operator's time relative to its DaemonSets alone.
	ratioLimit = 1.15
	// labellingRatioLimit is the same relative to its DaemonSets on nodes that a plain loop labels, and
	// fastLabellingRatioLimit for the fast stages.
	labellingRatioLimit, fastLabellingRatioLimit = 1.12, 1.10
	// fastWritesPerNode and fastWritesBeside are writesPerNode and writesBeside for the fast stages, including Events.
	fastWritesPerNode, fastWritesBeside = 3, 40
	// writesPerNode and writesBeside limit the writes until ready: per node, and in addition to that.
	writesPerNode, writesBeside = 4, 60
	// joinLabels, joinConditions and joinStatus limit the writes for one joining node.
	joinLabels, joinConditions, joinStatus = 2, 2, 3
	// joinBeside limits the writes for many simultaneously joining nodes, in addition to writesPerNode for each.
	joinBeside = 20
	// joinSeconds limits the time until a joining node is labelled.
	joinSeconds = 1
	// podWrites limits the writes for a lost pod.
	podWrites = 3
	// overdueSeconds limits the time from a stage's deadline until it is reported as overdue.
	overdueSeconds = 10
	// cachesSeconds limits the time from a start until the caches are synced.
	cachesSeconds = 5
	// none is the limit of figures without a goal.
	none = -1
)

// limits are goals that depend on the number of nodes: those of the smallest size that is not smaller apply.
type limits struct {
	nodes int
	// Units: cpu in seconds, memory in megabytes, pass in milliseconds.
	cpu, memory, pass float64
}

var bySize = []limits{
	{nodes: 100, cpu: 0.6, memory: 50, pass: 5},
	{nodes: 1000, cpu: 5, memory: 90, pass: 5},
	{nodes: 5000, cpu: none, memory: none, pass: 25},
}

func limitsOf(nodes int) limits {
	for _, l := range bySize {
		if nodes <= l.nodes {
			return l
		}
	}
	return limits{nodes: nodes, cpu: none, memory: none, pass: none}
}

// comparedLimits are the goals of runs that alternate with floors.
type comparedLimits struct {
	// toPreset and toLabelling are ratios to the two floors.
	toPreset, toLabelling float64
	// Units: cpu in seconds, memory and anonymous in megabytes.
	cpu, memory, anonymous float64
	writes                 float64
}

// fastBySize limits the operator's resource usage for the fast stages.
var fastBySize = []struct {
	nodes                  int
	cpu, memory, anonymous float64
}{
	{nodes: 100, cpu: 1.4, memory: 60, anonymous: 25},
	{nodes: 1000, cpu: 12, memory: 105, anonymous: 70},
}

// comparedGoals returns the goals of a size. With the realistic stages the phase install checks the resource usage.
func comparedGoals(how stages, nodes int) comparedLimits {
	goals := comparedLimits{
		toPreset: ratioLimit, toLabelling: labellingRatioLimit, cpu: none, memory: none, anonymous: none, writes: none,
	}
	if !how.byKwok() {
		return goals
	}
	goals.toLabelling, goals.writes = fastLabellingRatioLimit, float64(fastWritesPerNode*nodes+fastWritesBeside)
	for _, l := range fastBySize {
		if nodes <= l.nodes {
			goals.cpu, goals.memory, goals.anonymous = l.cpu, l.memory, l.anonymous
			break
		}
	}
	return goals
}
