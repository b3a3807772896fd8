package plan

import (
	"fmt"
	"maps"
	"strings"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/effective"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// Need tells what a node needs of an operand.
type Need int

const (
	// Expected: a pod of the operand must be ready on the node.
	Expected Need = iota
	// HostProvides: the host has what the operand would install.
	HostProvides
	// OptedOut: a user keeps the operand off the node, by its label or by a nodeSelector of the spec; the
	// stages above tell whether it is missed.
	OptedOut
	// Paused: the node's deploy label keeps the operand off it for now.
	Paused
	// NotPossible: the operand cannot run on this node, or not as the spec asks.
	NotPossible
)

// Rung is one operand's part in the ladder of a node.
type Rung struct {
	Stage   v1.Stage
	Operand operand.Name
	Need    Need
	// Reason and Message explain OptedOut, Paused and NotPossible.
	Reason, Message string
	// After is the operand that must have been ready on the node before pods of this one are made there: the one that
	// has the container runtime inject GPUs. Empty for none.
	After operand.Name
}

// Running is what works on a node, as far as its labels follow from it.
type Running struct {
	// Driver: a driver pod works, so that the node's pool must not change. That would delete the pod, and is the work of
	// a driver upgrade.
	Driver bool
	// Injector: the operand that has the container runtime inject GPUs is ready.
	Injector bool
}

// Node is the plan for one GPU node.
type Node struct {
	Facts operand.NodeFacts
	// NodePool is the pool of spec.nodePools that it belongs to, empty for none.
	NodePool string
	// Pool that its facts put it in; without a name where one is missing.
	Pool operand.Pool
	// Rungs from the bottom of the ladder.
	Rungs []Rung
	// Beside are the operands that the ladder does not depend on.
	Beside []Rung
	// Refused tells why nothing is installed on the node, if nothing is.
	Refused operand.Decision
	// Unselected tells which nodeSelector keeps the whole ladder off the node; empty if none does.
	Unselected string
	// Kept tells how the node loses the driver that it keeps though no nodeSelector asks for it; empty if
	// there is none.
	Kept string
	// Missing tells which discovery labels are away; empty for none.
	Missing string
	// NeedsAllocatable: the kubelet must advertise GPUs.
	NeedsAllocatable bool
	// Spec that holds for the node.
	Spec effective.Spec
}

// ladder is the order of the stages that operands reach.
var ladder = []v1.Stage{v1.StageDriver, v1.StageToolkit, v1.StageDevicePlugin, v1.StageValidated}

// ForNode plans one managed node.
func (d *Decisions) ForNode(facts operand.NodeFacts) Node {
	nodePool := d.poolOf(facts)
	in := d.inputFor(nodePool)
	node := Node{Facts: facts, Refused: d.Input.ServesVMs(facts), Missing: d.Missing(facts), Spec: in.Spec}
	if nodePool != nil {
		node.NodePool = nodePool.Name
	}
	if pool, complete := facts.WantedPool(in.PoolKey()); complete {
		node.Pool = pool
	}
	for _, stage := range ladder {
		node.Rungs = append(node.Rungs, d.rungs(stage, facts)...)
	}
	node.Beside = d.rungs("", facts)
	node.order(d.Catalogue)
	node.Kept = d.kept(facts)
	node.judgeSelection()
	if node.Refused.Reason == v1.ReasonNotSelected {
		node.Unselected = node.Refused.Message
	}
	return node
}

// order enters what comes after the operand that has the container runtime inject GPUs.
func (n *Node) order(catalogue []operand.Operand) {
	injector := injectorOf(catalogue, n.Rungs)
	if injector == "" {
		return
	}
	for _, rungs := range [][]Rung{n.Rungs, n.Beside} {
		for i := range rungs {
			if o, known := operand.Find(catalogue, rungs[i].Operand); known && o.Injected {
				rungs[i].After = injector
			}
		}
	}
}

// injectorOf is the operand of the ladder that has the container runtime of the node inject GPUs; empty where none is
// expected, as the host provides it or has to do without.
func injectorOf(catalogue []operand.Operand, rungs []Rung) operand.Name {
	for _, rung := range rungs {
		if o, known := operand.Find(catalogue, rung.Operand); known && o.Injects && rung.Need == Expected {
			return rung.Operand
		}
	}
	return ""
}

// rungs are the operands of one stage that concern the node.
func (d *Decisions) rungs(stage v1.Stage, facts operand.NodeFacts) []Rung {
	var rungs []Rung
	nodePool := d.poolOf(facts)
	for _, o := range d.Catalogue {
		decision := d.decision(&o, nodePool)
		if o.Stage != stage || !o.ServesWorkload(d.Input.WorkloadOf(facts)) || decision.Verdict == operand.Absent {
			continue
		}
		possible := d.canServe(o, facts)
		if possible.Verdict == operand.Absent {
			continue
		}
		if selected := d.selects(o, facts); selected.Verdict != operand.Install {
			rungs = append(rungs, rung(o, selected, facts))
			continue
		}
		if decision.Verdict == operand.Install {
			decision = d.ready(&o, nodePool)
		}
		if decision.Verdict == operand.Install {
			decision = possible
		}
		if decision.Verdict == operand.Install {
			decision = d.servesPoolOf(o, facts)
		}
		rungs = append(rungs, rung(o, decision, facts))
	}
	return rungs
}

// servesPoolOf decides by the pool that the node belongs into. The one that it is labelled with may be
// one that the spec asks for no longer: the node is to be moved, which is no failure.
func (d *Decisions) servesPoolOf(o operand.Operand, facts operand.NodeFacts) operand.Decision {
	if o.ServesPool == nil {
		return operand.Installed()
	}
	in := d.inputOf(facts)
	pool, complete := facts.WantedPool(in.PoolKey())
	if !complete {
		return operand.Installed()
	}
	return o.ServesPool(in, pool)
}

func rung(o operand.Operand, decision operand.Decision, facts operand.NodeFacts) Rung {
	r := Rung{Stage: o.Stage, Operand: o.Name}
	name, value := decidingLabel(o, facts)
	if value == labels.DeployPreInstalled {
		r.Need = HostProvides
		return r
	}
	if decision.Reason == v1.ReasonNotSelected {
		r.Need, r.Reason, r.Message = OptedOut, decision.Reason, decision.Message
		return r
	}
	if decision.Verdict != operand.Install {
		r.Need, r.Reason, r.Message = NotPossible, decision.Reason, decision.Message
		return r
	}
	if value == "" || value == labels.True {
		return r
	}
	r.Need, r.Reason = Paused, v1.ReasonOperandPaused
	if value == labels.False {
		r.Need = OptedOut
	}
	r.Message = fmt.Sprintf("label %s is %q", name.DeployLabel(), value)
	return r
}

// decidingLabel is the operand whose deploy label decides whether this one runs on the node, and its
// value: its own, or that of the operand that it follows, where that keeps both off.
func decidingLabel(o operand.Operand, facts operand.NodeFacts) (operand.Name, string) {
	if followed := facts.Deploy[o.Follows]; followed != "" && followed != labels.True {
		return o.Follows, followed
	}
	return o.Name, facts.Deploy[o.Name]
}

// NodeLabels computes the changes of the node's labels: a nil value removes the key. A node that is
// not managed keeps none of the operator's labels; a value that somebody else wrote stays.
//
// The deploy labels of operands into which GPUs are injected come once the injector is ready: before, the container
// runtime does not know their RuntimeClass, and the kubelet tries a pod that it has failed to start again only after 10 to
// 15 s. A label that is there stays whatever becomes of the injector.
func (d *Decisions) NodeLabels(facts operand.NodeFacts, current map[string]string, running Running) map[string]*string {
	changes := map[string]*string{}
	set := func(key, value string) {
		if current[key] != value {
			changes[key] = &value
		}
	}
	set(labels.GPUPresent, labels.True)
	wanted := d.deployLabels(facts)
	early := d.early(facts, running)
	for key, verdict := range wanted {
		// Any value but an empty one is somebody's decision about this node.
		if verdict == operand.Install && current[key] == "" && !early[key] {
			set(key, labels.True)
		}
	}
	for key, value := range d.defaults(facts, current) {
		set(key, value)
	}
	for key, value := range current {
		// Where an operand cannot be served, what runs of it is left alone: the fact that speaks
		// against it may be missing for a moment only.
		if _, stays := wanted[key]; !stays && isOwnDeployLabel(d.Catalogue, key, value) {
			changes[key] = nil
		}
	}
	kinds := d.kinds(facts, running.Driver)
	d.anchor(kinds, wanted)
	for key, value := range kinds {
		if _, there := current[key]; value == "" && there {
			changes[key] = nil
			continue
		}
		set(key, value)
	}
	return changes
}

// early are the deploy labels whose pods could not be started on the node yet.
func (d *Decisions) early(facts operand.NodeFacts, running Running) map[string]bool {
	early := map[string]bool{}
	if running.Injector {
		return early
	}
	for _, stage := range ladder {
		if injectorOf(d.Catalogue, d.rungs(stage, facts)) == "" {
			continue
		}
		for _, o := range d.Catalogue {
			early[o.Name.DeployLabel()] = o.Injected
		}
	}
	return early
}

// kinds are the labels by which an operand with several DaemonSets tells their nodes apart, as far as
// they are known and may change. A label with an empty value is to go.
func (d *Decisions) kinds(facts operand.NodeFacts, hasDriverPod bool) map[string]string {
	nodePool := d.poolOf(facts)
	kinds := d.poolLabels(nodePool)
	if layout, known := facts.WantedLayout(); known {
		kinds[labels.Runtime] = layout.Name
	}
	stays := facts.Pool != "" && (hasDriverPod || d.refusesDriver(nodePool))
	if pool, complete := facts.WantedPool(d.inputFor(nodePool).PoolKey()); complete && (facts.Pool == pool.Name || !stays) {
		kinds[labels.Pool], kinds[labels.PoolKernel] = pool.Name, pool.Kernel
		kinds[labels.PoolCoreOS], kinds[labels.PoolNodePool] = pool.CoreOS, pool.NodePool
	} else if facts.Pool != "" {
		kinds[labels.Pool] = facts.Pool
	}
	return kinds
}

// anchor adds the anchors to the labels by which DaemonSets tell nodes apart. A node has the anchor of an operand that it
// is to run, and of one that it keeps. Where a label that belongs to the kind is not known, the anchor stays as it is.
func (d *Decisions) anchor(kinds map[string]string, deploy map[string]operand.Verdict) {
	for i := range d.Catalogue {
		o := &d.Catalogue[i]
		key := o.AnchorLabel()
		if key == "" {
			continue
		}
		verdict, runs := deploy[o.Name.DeployLabel()]
		switch kind, known := kindOf(o, kinds); {
		case !runs:
			kinds[key] = ""
		case verdict == operand.Install && known:
			kinds[key] = kind
		}
	}
}

// kindOf is the kind of a node with these labels among those of the operand, or false if it is not known.
func kindOf(o *operand.Operand, kinds map[string]string) (string, bool) {
	if o.ServesPool != nil {
		return kinds[labels.Pool], kinds[labels.Pool] != ""
	}
	nodePool, known := kinds[o.NodePoolLabel()]
	return operand.Kind("", kinds[labels.Runtime], nodePool), kinds[labels.Runtime] != "" && known
}

// defaults are the labels that the node's operands want on it and that it lacks.
func (d *Decisions) defaults(facts operand.NodeFacts, current map[string]string) map[string]string {
	wanted := map[string]string{}
	nodePool := d.poolOf(facts)
	for _, o := range d.Catalogue {
		if o.Labels == nil || facts.Excluded || d.decision(&o, nodePool).Verdict != operand.Install || d.serves(o, facts).Verdict != operand.Install {
			continue
		}
		maps.Copy(wanted, o.Labels(d.inputFor(nodePool)))
	}
	maps.DeleteFunc(wanted, func(key, _ string) bool { return current[key] != "" })
	return wanted
}

// deployLabels are the deploy labels that a node is to have, or to keep if it has them.
func (d *Decisions) deployLabels(facts operand.NodeFacts) map[string]operand.Verdict {
	wanted := map[string]operand.Verdict{}
	if facts.Excluded {
		return wanted
	}
	for _, o := range d.Catalogue {
		if verdict := d.serves(o, facts).Verdict; verdict != operand.Absent {
			wanted[o.Name.DeployLabel()] = verdict
		}
	}
	wanted[labels.DeployClient] = operand.Install
	return wanted
}

// ReleasedLabels are the changes that take the operator's labels off a node: what it wrote, and
// nothing that others wrote. present is the value that nvidia.com/gpu.present gets, empty for none.
func ReleasedLabels(catalogue []operand.Operand, current map[string]string, present string) map[string]*string {
	changes := map[string]*string{}
	for key, value := range current {
		if isKindLabel(key) || isOwnDeployLabel(catalogue, key, value) {
			changes[key] = nil
		}
	}
	now, there := current[labels.GPUPresent]
	switch {
	case present == "" && there:
		changes[labels.GPUPresent] = nil
	case present != "" && there && now != present:
		changes[labels.GPUPresent] = &present
	}
	return changes
}

// isKindLabel tells whether nobody but the operator writes this label.
func isKindLabel(key string) bool {
	switch key {
	case labels.Pool, labels.PoolKernel, labels.PoolCoreOS, labels.PoolNodePool, labels.NodePool, labels.Runtime:
		return true
	}
	return strings.HasPrefix(key, labels.NodePoolPrefix) || strings.HasPrefix(key, labels.AnchorPrefix)
}

// isOwnDeployLabel tells whether the operator wrote this deploy label with this value.
func isOwnDeployLabel(catalogue []operand.Operand, key, value string) bool {
	name, isDeploy := strings.CutPrefix(key, labels.DeployPrefix)
	if !isDeploy || value != labels.True {
		return false
	}
	_, known := operand.Find(catalogue, operand.Name(name))
	return known || key == labels.DeployClient
}
