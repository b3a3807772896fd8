package main

// name identifies a figure that others are compared with.
type name string

const (
	readyTime name = "ready"
	floorTime name = "floor"
	// labellingFloorTime is the floor on nodes that a plain loop labels.
	labellingFloorTime name = "labelling floor"
	// other figures are not compared.
	other name = ""
)

// Goals.
const (
	// otherRatioLimit is the limit for the operator's time relative to that of another one.
	otherRatioLimit = 1.00
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
	// passToReady is the mean of the passes of an installation, in milliseconds.
	passToReady float64
}

var bySize = []limits{
	{nodes: 100, cpu: 0.6, memory: 50, pass: 5, passToReady: none},
	{nodes: 1000, cpu: 5, memory: 90, pass: 5, passToReady: none},
	{nodes: 5000, cpu: none, memory: 300, pass: 25, passToReady: 25},
}

func limitsOf(nodes int) limits {
	for _, l := range bySize {
		if nodes <= l.nodes {
			return l
		}
	}
	return limits{nodes: nodes, cpu: none, memory: none, pass: none, passToReady: none}
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
func comparedGoals(how setting, nodes int) comparedLimits {
	goals := comparedLimits{
		toPreset: ratioLimit, toLabelling: labellingRatioLimit, cpu: none, memory: none, anonymous: none, writes: none,
	}
	if how.Other != "" {
		return besideGoals(how, nodes)
	}
	if !how.Stages.byKwok() {
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

// besideMemory limits the peak of the operator's RSS, in megabytes, when it is compared with another operator.
var besideMemory = []struct {
	nodes  int
	memory float64
}{
	{nodes: 100, memory: 60},
	{nodes: 1000, memory: 120},
}

// besideGoals returns the goals of runs that alternate with another operator. That of the CPU is the other's.
func besideGoals(how setting, nodes int) comparedLimits {
	goals := comparedLimits{
		toPreset: ratioLimit, toLabelling: none, cpu: none, memory: none, anonymous: none, writes: none,
	}
	if how.Stages.byKwok() {
		goals.writes = float64(fastWritesPerNode*nodes + fastWritesBeside)
	}
	for _, l := range besideMemory {
		if nodes <= l.nodes {
			goals.memory = l.memory
			break
		}
	}
	return goals
}
