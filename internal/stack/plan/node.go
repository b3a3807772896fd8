package plan

import (
	"cmp"
	"fmt"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
)

// Expectation is what is expected of one operand on a node.
type Expectation int

const (
	// Expected: a pod of the operand must be ready on the node.
	Expected Expectation = iota
	// HostProvides: the host has what the operand would install.
	HostProvides
	// OptedOut: a user keeps the operand off the node, by its label or by a nodeSelector of the spec. Later stages may
	// still depend on it.
	OptedOut
	// PausedByLabel: the node's deploy label keeps the operand off it for now.
	PausedByLabel
	// Refused: the operand cannot run on this node now, or not as specified.
	Refused
)

// OperandOnNode is what is expected of one operand on a node.
type OperandOnNode struct {
	// Stage of the operand; empty for an auxiliary one.
	Stage       v1.Stage
	Operand     operand.Name
	Expectation Expectation
	// Reason and Message explain OptedOut, PausedByLabel and Refused, and Message also HostProvides.
	Reason, Message string
	// Injector is the injector, which must have been ready on the node before pods of this operand are created there.
	// Empty for none.
	Injector operand.Name
}

// ReadyPods are the ready pods of a node that its labels depend on.
type ReadyPods struct {
	// Driver: a driver pod is ready, so the node's pool must not change. That would delete the pod, which only a driver
	// upgrade may do.
	Driver bool
	// CurrentDriver: that pod also has the current template of its DaemonSet.
	CurrentDriver bool
	// Injector: the injector is ready.
	Injector bool
	// Unused: no pod uses the GPUs of the node. It is read only if FirstLayout depends on it, and false otherwise.
	Unused bool
}

// Undeclared reports whether the operand is the driver of a node for which NVIDIADriver objects declare none: no object
// selects the node, or several do. A driver that runs there stays as it is.
func (o OperandOnNode) Undeclared() bool { return o.Expectation == Refused && IsUndeclared(o.Reason) }

// IsUndeclared reports whether this is the reason of an operand that is Undeclared.
func IsUndeclared(reason string) bool {
	return reason == v1.ReasonNoNVIDIADriver || reason == v1.ReasonConflictingNodeSelector
}

// NodePlan is the plan for one GPU node.
type NodePlan struct {
	Facts nodeinfo.Facts
	// NodePool is the node pool that it belongs to, empty for none.
	NodePool string
	// DriverOwner is the NVIDIADriver object that declares its driver, empty for none.
	DriverOwner string
	// Pool is the driver pool by its facts; without a name if a fact is missing.
	Pool nodeinfo.Pool
	// Essential are the essential operands that have a stage, in the order of the stages.
	Essential []OperandOnNode
	// Auxiliary are the auxiliary operands.
	Auxiliary []OperandOnNode
	// Partitioner is the expected operand that partitions the node's GPUs; empty for none.
	Partitioner operand.Name
	// PartitionerOff: it is none now, but one that its label pauses, or that is refused, is to run there again.
	PartitionerOff bool
	// HealthReporter is the operand that reports the faults of the node's GPUs; empty for none.
	HealthReporter operand.Name
	// Decision is Install; Refused if nothing is installed on the node; or Absent if no nodeSelector selects it, and it
	// is for virtual machines.
	Decision operand.Decision
	// LabelNotes describe the labels of the node that have no effect, or not the one that their values say.
	LabelNotes []string
	// Unselected describes the nodeSelector that excludes all stages from the node; empty if none does.
	Unselected string
	// RetainedDriver describes how to remove the driver that the node retains although no nodeSelector selects it; empty
	// if there is none.
	RetainedDriver string
	// MissingLabels describes the missing discovery labels; empty for none.
	MissingLabels string
	// PluginConfig is why the device plugin's configuration that the node's label selects is not used; zero if it is.
	PluginConfig operand.ConfigProblem
	// PluginConfigRead is the configuration that the device plugin of the node is to read from a ConfigMap.
	PluginConfigRead operand.NodePluginConfig
	// GPUReplicas is how many pods share a GPU of the node by its configuration; 0 if none do.
	GPUReplicas int
	// MIGLayout describes why the MIG manager does not know the layout that the node's label requests; empty if it does.
	MIGLayout string
	// MIGWanted is the MIG layout that the operator is to request instead of the one that it has requested before; empty
	// for none. MIGRefused describes why the layout that the spec wants is not requested.
	MIGWanted, MIGRefused string
	// NeedsAllocatable: the kubelet must advertise GPUs. PluginOff is why the spec has no operand that advertises them
	// there; empty if it has one, which a label or a nodeSelector may keep off the node.
	NeedsAllocatable bool
	PluginOff        string
	// Spec that applies to the node.
	Spec effective.Spec
}

// Moves reports whether the node has the driver of a pool other than its own.
func (n *NodePlan) Moves() bool {
	return n.Pool.Name != "" && n.Facts.Pool != "" && n.Facts.Pool != n.Pool.Name
}

// ForNode plans one managed node.
func (d *Decisions) ForNode(facts nodeinfo.Facts) NodePlan {
	nodePool := d.nodePoolOf(facts)
	in := d.driverInput(facts)
	node := NodePlan{
		Facts:         facts,
		Decision:      d.Input.CheckWorkloadSupported(facts),
		MissingLabels: d.DescribeMissingLabels(facts),
		Spec:          d.inputForNodePool(nodePool).Spec,
	}
	if d.Input.UsesNVIDIADrivers() {
		node.Spec.Driver, node.Spec.GDS, node.Spec.GDRCopy = in.Spec.Driver, in.Spec.GDS, in.Spec.GDRCopy
	}
	node.DriverOwner = d.ownerOf(facts)
	selected := facts.Labels[labels.DevicePluginConfig]
	node.PluginConfig = d.inputForNodePool(nodePool).CheckPluginConfig(selected)
	node.PluginConfigRead = d.inputForNodePool(nodePool).PluginConfigFor(selected)
	node.GPUReplicas = d.inputForNodePool(nodePool).GPUReplicas(selected)
	requested := facts.Labels[labels.MIGConfig]
	node.MIGLayout = cmp.Or(d.Input.CheckMIGLayout(requested), d.Input.CheckMIGModel(requested, facts.Product))
	node.MIGWanted, node.MIGRefused = d.migLayout(facts)
	if nodePool != nil {
		node.NodePool = nodePool.Name
	}
	if pool, complete := facts.PoolByFacts(in.PoolCriteria()); complete {
		node.Pool = pool
	}
	for _, stage := range v1.Stages() {
		node.Essential = append(node.Essential, d.operandsOfStage(stage, facts)...)
	}
	node.Auxiliary = d.operandsOfStage("", facts)
	node.PluginOff = d.pluginOff(facts)
	d.setInjector(&node)
	node.Partitioner, node.PartitionerOff = d.partitionerOf(node.Auxiliary)
	node.HealthReporter = d.healthReporterOf(node.Auxiliary)
	node.LabelNotes = d.labelNotes(&node)
	node.RetainedDriver = d.retainedDriver(facts)
	node.evaluateSelection()
	if node.Decision.Reason == v1.ReasonNotSelected {
		node.Unselected = node.Decision.Message
	}
	return node
}

// Driver returns what is expected of the driver on the node: the operand whose pods are replaced only when they are
// deleted. It returns false if the driver does not apply to the node.
func (d *Decisions) Driver(node *NodePlan) (OperandOnNode, bool) {
	for _, onNode := range node.Essential {
		if o, known := d.Catalogue.Find(onNode.Operand); known && o.UpdatesOnDelete {
			return onNode, true
		}
	}
	return OperandOnNode{}, false
}

// setInjector sets Injector of the injected operands.
func (d *Decisions) setInjector(n *NodePlan) {
	injector, _ := d.injectorOf(n.Essential)
	if injector == "" {
		return
	}
	for _, operands := range [][]OperandOnNode{n.Essential, n.Auxiliary} {
		for i := range operands {
			if o, known := d.Catalogue.Find(operands[i].Operand); known && o.NeedsInjection {
				operands[i].Injector = injector
			}
		}
	}
}

// injectorOf returns the injector among the operands; empty if the host provides it, or if it cannot or must not run.
// paused reports whether its deploy label keeps it off for now.
func (d *Decisions) injectorOf(operands []OperandOnNode) (name operand.Name, paused bool) {
	for _, onNode := range operands {
		if o, known := d.Catalogue.Find(onNode.Operand); known && o.IsInjector &&
			(onNode.Expectation == Expected || onNode.Expectation == PausedByLabel) {
			return onNode.Operand, onNode.Expectation == PausedByLabel
		}
	}
	return "", false
}

// partitionerOf returns the expected operand that partitions GPUs; empty if there is none. off reports whether that is
// only for now.
func (d *Decisions) partitionerOf(operands []OperandOnNode) (name operand.Name, off bool) {
	for _, onNode := range operands {
		o, known := d.Catalogue.Find(onNode.Operand)
		switch {
		case !known || !o.PartitionsGPUs:
		case onNode.Expectation == Expected:
			return onNode.Operand, false
		case onNode.Expectation == PausedByLabel || onNode.Expectation == Refused:
			off = true
		}
	}
	return "", off
}

// healthReporterOf returns the operand that reports the faults of GPUs, even while it is paused; empty if there is
// none.
func (d *Decisions) healthReporterOf(operands []OperandOnNode) operand.Name {
	for _, onNode := range operands {
		if o, known := d.Catalogue.Find(onNode.Operand); known && o.ReportsHealth && onNode.Expectation != OptedOut {
			return onNode.Operand
		}
	}
	return ""
}

// operandsOfStage returns the operands of one stage that apply to the node; for an empty stage the auxiliary ones.
func (d *Decisions) operandsOfStage(stage v1.Stage, facts nodeinfo.Facts) []OperandOnNode {
	var operands []OperandOnNode
	for _, o := range d.Catalogue {
		nodePool := d.poolOf(&o, facts)
		decision := d.decision(&o, nodePool)
		if o.Stage != stage || !o.ServesWorkload(d.Input.WorkloadOf(facts)) || decision.Choice == operand.Absent {
			continue
		}
		possible := d.checkFacts(o, facts)
		if possible.Choice == operand.Absent {
			continue
		}
		if selected := d.checkNodeSelector(o, facts); selected.Choice != operand.Install {
			operands = append(operands, operandOnNode(o, selected, facts))
			continue
		}
		if decision.Choice == operand.Install {
			decision = d.decisionInCluster(&o, nodePool)
		}
		if decision.Choice == operand.Install {
			decision = possible
		}
		if decision.Choice == operand.Install {
			decision = d.checkPoolByFacts(o, facts)
		}
		operands = append(operands, operandOnNode(o, decision, facts))
	}
	return operands
}

// pluginOff returns why the spec has no operand that advertises the GPUs of a node; empty if it has one.
func (d *Decisions) pluginOff(facts nodeinfo.Facts) string {
	for i := range d.Catalogue {
		o := &d.Catalogue[i]
		if o.Stage != v1.StageDevicePlugin || !o.ServesWorkload(d.Input.WorkloadOf(facts)) {
			continue
		}
		if decision := d.decision(o, d.poolOf(o, facts)); decision.Choice == operand.Absent {
			return decision.Message
		}
	}
	return ""
}

// checkPoolByFacts decides by the pool that follows from the node's facts. The spec may no longer have the pool that
// the node is labelled with; the node is then to be moved, which is not a failure.
func (d *Decisions) checkPoolByFacts(o operand.Operand, facts nodeinfo.Facts) operand.Decision {
	if !o.PerPool {
		return operand.Accept()
	}
	in := d.driverInput(facts)
	pool, complete := facts.PoolByFacts(in.PoolCriteria())
	if !complete {
		return operand.Accept()
	}
	return checkPool(o, in, pool)
}

// checkPool decides whether the operand can serve the nodes of a driver pool.
func checkPool(o operand.Operand, in operand.Input, pool nodeinfo.Pool) operand.Decision {
	if o.ServesPool == nil {
		return operand.Accept()
	}
	return o.ServesPool(in, pool)
}

func operandOnNode(o operand.Operand, decision operand.Decision, facts nodeinfo.Facts) OperandOnNode {
	r := OperandOnNode{Stage: o.Stage, Operand: o.Name}
	name, value := decidingLabel(o, facts)
	if value == labels.DeployPreInstalled {
		r.Expectation, r.Message = HostProvides, fmt.Sprintf("label %s is %q", name.DeployLabel(), value)
		return r
	}
	if decision.Reason == v1.ReasonNotSelected {
		r.Expectation, r.Reason, r.Message = OptedOut, decision.Reason, decision.Message
		return r
	}
	if decision.Choice != operand.Install {
		r.Expectation, r.Reason, r.Message = Refused, decision.Reason, decision.Message
		return r
	}
	if value == "" || value == labels.True {
		return r
	}
	r.Expectation, r.Reason = PausedByLabel, v1.ReasonOperandPaused
	if value == labels.False {
		r.Expectation = OptedOut
	}
	r.Message = fmt.Sprintf("label %s is %q", name.DeployLabel(), value)
	return r
}

// decidingLabel returns the operand whose deploy label decides whether this one runs on the node, and the label's
// value: the operand itself, or the one that it follows if that label keeps both off.
func decidingLabel(o operand.Operand, facts nodeinfo.Facts) (operand.Name, string) {
	if followed := facts.Deploy[string(o.Follows)]; followed != "" && followed != labels.True {
		return o.Follows, followed
	}
	return o.Name, facts.Deploy[string(o.Name)]
}
