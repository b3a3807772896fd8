package main

// name is what a figure is known by.
type name string

// Figures that have something beside them: that of NVIDIA's operator, or another figure that they are compared with.
const (
	readyTime   name = "ready"
	floorTime   name = "floor"
	bareTime    name = "bare"
	cpuToReady  name = "cpu"
	peakMemory  name = "memory"
	readyWrites name = "ready writes"
	after90     name = "after ready"
	brokenMin   name = "broken minute"
	nodeJoin    name = "join"
	podLoss     name = "pod"
	restarted   name = "restart"
	noOpWrites  name = "no-op writes"
	// other figures have nothing beside them.
	other name = ""
)

// theirs are figures of NVIDIA's operator (commit a22dbf67), by the number of nodes. They were measured once on the
// same kind of machine, control plane and simulated nodes; see docs/benchmarks.md.
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

// Goals.
const (
	// ratioLimit is how much longer the operator may take than its DaemonSets alone.
	ratioLimit = 1.15
	// writesPerNode and writesBeside are what the way to ready may cost.
	writesPerNode, writesBeside = 4, 60
	// joinLabels, joinConditions and joinStatus are what one node may cost that joins.
	joinLabels, joinConditions, joinStatus = 2, 2, 3
	// joinBeside is what many nodes that join at once may cost beside writesPerNode each.
	joinBeside = 20
	// joinSeconds is how soon a node that joins is worked on.
	joinSeconds = 1
	// podWrites are what a lost pod may cost.
	podWrites = 3
	// overdueSeconds is how soon after its deadline a stage is told to be overdue.
	overdueSeconds = 10
	// cachesSeconds is how soon the caches are filled after a start.
	cachesSeconds = 5
	// none is the limit of what has no goal.
	none = -1
)

// limits are goals that depend on the number of nodes: those of the first size that is not smaller.
type limits struct {
	nodes int
	// cpu in seconds, memory in megabytes, pass in milliseconds.
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
