package plan

import (
	"maps"
	"slices"
	"strings"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// NodeLabels returns the changes of a managed node's labels: a nil value removes the key. Values that another writer
// set stay.
//
// The deploy labels of injected operands are added once the injector is ready: until then the container runtime has no
// handler for their RuntimeClass, and the kubelet retries a failed pod only after 10 to 15 s. An existing label stays
// even if the injector fails later.
func (d *Decisions) NodeLabels(
	facts nodeinfo.Facts,
	current map[string]string,
	ready ReadyPods,
) map[string]*string {
	desired := d.deployLabels(facts)
	changes := d.staleDeployLabels(current, desired)
	set := func(key, value string) {
		if current[key] != value {
			changes[key] = &value
		}
	}
	set(labels.GPUPresent, labels.True)
	if _, removed := current[labels.Cleanup]; removed {
		// Another policy has been deleted, whose stack was being removed from the node.
		changes[labels.Cleanup] = nil
	}
	for _, key := range d.dueDeployLabels(facts, current, desired, ready) {
		set(key, labels.True)
	}
	for _, key := range resumedDeployLabels(facts, current, desired) {
		set(key, labels.True)
	}
	if layout, disturbs := d.FirstLayout(facts, current); layout != "" && (!disturbs || ready.Unused) {
		set(labels.MIGConfig, layout)
	}
	placement := d.placementLabels(facts, ready.Driver)
	d.addAnchors(placement, desired)
	for key, value := range placement {
		if _, there := current[key]; value == "" && there {
			changes[key] = nil
			continue
		}
		set(key, value)
	}
	return changes
}

// staleDeployLabels removes the deploy labels that the operator wrote and that the node must no longer have.
func (d *Decisions) staleDeployLabels(current map[string]string, desired map[string]operand.Choice) map[string]*string {
	changes := map[string]*string{}
	for key, value := range current {
		// An operand that cannot be served on the node keeps its label: a fact may be missing for a moment only.
		if _, stays := desired[key]; !stays && isOwnDeployLabel(d.Catalogue, key, value) {
			changes[key] = nil
		}
	}
	return changes
}

// dueDeployLabels returns the missing deploy labels whose pods can be started on the node.
func (d *Decisions) dueDeployLabels(
	facts nodeinfo.Facts, current map[string]string, desired map[string]operand.Choice, ready ReadyPods,
) []string {
	var missing []string
	for key, choice := range desired {
		// Another writer, or a user, has set any other value but the empty one.
		if choice == operand.Install && current[key] == "" {
			missing = append(missing, key)
		}
	}
	if len(missing) == 0 || !d.awaitsInjector(facts, ready) {
		return missing
	}
	return slices.DeleteFunc(missing, func(key string) bool {
		o, known := d.Catalogue.Find(operand.Name(strings.TrimPrefix(key, labels.DeployPrefix)))
		return known && o.NeedsInjection
	})
}

// resumedDeployLabels returns the deploy labels that the MIG manager has left paused although its change has ended or
// takes too long. It writes its state pending before it pauses operands, and its outcome after it has resumed them; it
// resumes none if it fails midway.
func resumedDeployLabels(
	facts nodeinfo.Facts, current map[string]string, desired map[string]operand.Choice,
) []string {
	state := current[labels.MIGConfigState]
	if state != labels.MIGStateFailed && state != labels.MIGStateSuccess && !facts.MIGOverdue {
		return nil
	}
	var paused []string
	for key, choice := range desired {
		if choice == operand.Install && current[key] == labels.DeployPausedForMIG {
			paused = append(paused, key)
		}
	}
	return paused
}

// awaitsInjector reports whether injected pods could not be started on the node yet. None may be added while
// k8s-driver-manager pauses the injector, as it then waits until no pod uses the driver.
func (d *Decisions) awaitsInjector(facts nodeinfo.Facts, ready ReadyPods) bool {
	for _, o := range d.Catalogue {
		if !o.IsInjector {
			continue
		}
		if injector, paused := d.injectorOf(d.operandsOfStage(o.Stage, facts)); injector != "" &&
			(paused || !ready.Injector) {
			return true
		}
	}
	return false
}

// placementLabels returns the labels by which DaemonSets of variants and of node pools select their nodes, if they are
// known and may change. A label with an empty value is to be removed.
func (d *Decisions) placementLabels(facts nodeinfo.Facts, driverReady bool) map[string]string {
	nodePool := d.nodePoolOf(facts)
	placement := d.nodePoolLabels(nodePool)
	maps.Copy(placement, d.ownerLabel(facts))
	if layout, known := facts.LayoutByFacts(); known {
		placement[labels.Layout] = layout.Name
	}
	stays := facts.Pool != "" && (driverReady || d.refusesDriver(facts))
	if pool, complete := facts.PoolByFacts(d.driverInput(facts).PoolCriteria()); complete &&
		(facts.Pool == pool.Name || !stays) {
		placement[labels.Pool], placement[labels.PoolKernel] = pool.Name, pool.Kernel
		placement[labels.PoolCoreOS], placement[labels.PoolNodePool] = pool.CoreOS, pool.NodePool
	} else if facts.Pool != "" {
		placement[labels.Pool] = facts.Pool
	}
	return placement
}

// addAnchors adds the anchors of the operands that the node is to run or keeps. An anchor does not change while a label
// of the variant is unknown.
func (d *Decisions) addAnchors(placement map[string]string, deploy map[string]operand.Choice) {
	for i := range d.Catalogue {
		o := &d.Catalogue[i]
		key := o.AnchorLabel()
		if key == "" {
			continue
		}
		choice, runs := deploy[o.Name.DeployLabel()]
		switch variant, known := variantOf(o, placement); {
		case !runs:
			placement[key] = ""
		case choice == operand.Install && known:
			placement[key] = variant
		}
	}
}

// variantOf returns the operand's variant for a node with these labels, or false if it is unknown.
func variantOf(o *operand.Operand, placement map[string]string) (string, bool) {
	if o.PerPool {
		return placement[labels.Pool], placement[labels.Pool] != ""
	}
	nodePool, known := placement[o.NodePoolLabel()]
	return operand.Variant("", placement[labels.Layout], nodePool), placement[labels.Layout] != "" && known
}

// migLayout returns the MIG layout that the operator is to request for the node: that of the spec, unless a user has
// requested one, or the node has it. refused describes why the layout of the spec cannot be requested.
func (d *Decisions) migLayout(facts nodeinfo.Facts) (layout, refused string) {
	current := facts.Labels[labels.MIGConfig]
	if current != "" && current != facts.MIGWritten {
		return "", ""
	}
	wanted := d.defaultLayout(facts)
	if wanted == "" || wanted == current {
		return "", ""
	}
	if problem := d.inputForNodePool(d.nodePoolOf(facts)).CheckMIGModel(wanted, facts.Product); problem != "" {
		return "", problem
	}
	return wanted, ""
}

// FirstLayout returns the MIG layout that is requested for a node that has none yet, without a turn: at once or, if it
// disturbs pods that use the GPUs, when there are none. It is empty for none. Every other layout is requested by the
// upgrade controller.
func (d *Decisions) FirstLayout(facts nodeinfo.Facts, current map[string]string) (layout string, disturbs bool) {
	if current[labels.MIGConfig] != "" {
		return "", false
	}
	layout, _ = d.migLayout(facts)
	return layout, layout != "" && (layout != labels.MIGAllDisabled || showsMIG(current))
}

// showsMIG reports whether GPU Feature Discovery reports MIG devices.
func showsMIG(current map[string]string) bool {
	if strings.Contains(current[labels.GPUProduct], labels.ProductMIG) {
		return true
	}
	for key := range current {
		if strings.HasPrefix(key, labels.ResourceMIGPrefix) {
			return true
		}
	}
	return false
}

// defaultLayout returns the MIG layout that the spec wants for the node, empty for none.
func (d *Decisions) defaultLayout(facts nodeinfo.Facts) string {
	nodePool := d.nodePoolOf(facts)
	for _, o := range d.Catalogue {
		if o.Layout != nil && !facts.ExcludedByLabel && d.decision(&o, nodePool).Choice == operand.Install &&
			d.checkNode(o, facts).Choice == operand.Install {
			return o.Layout(d.inputForNodePool(nodePool))
		}
	}
	return ""
}

// deployLabels returns the deploy labels that a node is to have (Install), or to keep if it has them (Refused).
func (d *Decisions) deployLabels(facts nodeinfo.Facts) map[string]operand.Choice {
	desired := map[string]operand.Choice{}
	if facts.ExcludedByLabel {
		return desired
	}
	for _, o := range d.Catalogue {
		if choice := d.checkNode(o, facts).Choice; choice != operand.Absent {
			desired[o.Name.DeployLabel()] = choice
		}
	}
	desired[labels.DeployClient] = operand.Install
	return desired
}

// SelectingLabels returns those of a node's labels by which pods of the operand are on it: its deploy label, if the
// operator wrote it, and its anchor.
func SelectingLabels(o *operand.Operand, current map[string]string) []string {
	var keys []string
	if current[o.Name.DeployLabel()] == labels.True {
		keys = append(keys, o.Name.DeployLabel())
	}
	if _, anchored := current[o.AnchorLabel()]; anchored {
		keys = append(keys, o.AnchorLabel())
	}
	return keys
}

// ReleasedLabels returns the changes that remove the labels which the operator wrote, and no others. present is the new
// value of nvidia.com/gpu.present; empty removes that label.
func ReleasedLabels(catalogue operand.Catalogue, current map[string]string, present string) map[string]*string {
	changes := map[string]*string{}
	for key, value := range current {
		if isOperatorLabel(key) || isOwnDeployLabel(catalogue, key, value) ||
			present == "" && isPausedDeployLabel(catalogue, key, value) {
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

// isOperatorLabel reports whether only the operator writes this label.
func isOperatorLabel(key string) bool {
	switch key {
	case labels.Pool, labels.PoolKernel, labels.PoolCoreOS, labels.PoolNodePool, labels.NodePool, labels.Layout,
		labels.Cleanup, labels.DriverOwner:
		return true
	}
	return strings.HasPrefix(key, labels.NodePoolPrefix) || strings.HasPrefix(key, labels.AnchorPrefix)
}

// isPausedDeployLabel reports whether an operand of the stack has given a deploy label this value, for as long as it
// works on the node.
func isPausedDeployLabel(catalogue operand.Catalogue, key, value string) bool {
	return (strings.HasPrefix(value, labels.DeployPausedPrefix) || value == labels.DeployPreInstalled) &&
		isOwnDeployLabel(catalogue, key, labels.True)
}

// isOwnDeployLabel reports whether the operator wrote this deploy label with this value.
func isOwnDeployLabel(catalogue operand.Catalogue, key, value string) bool {
	name, isDeploy := strings.CutPrefix(key, labels.DeployPrefix)
	if !isDeploy || value != labels.True {
		return false
	}
	_, known := catalogue.Find(operand.Name(name))
	return known || key == labels.DeployClient
}
