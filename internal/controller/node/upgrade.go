package node

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/nodemarks"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// markUpgrades adds what the node controller writes for driver upgrades to the changes of labels and annotations: the
// annotation by which k8s-driver-manager evicts no pods, wherever the operator installs the driver, and the label of a
// driver that is up to date. The rest is the upgrade controller's.
func (s *scope) markUpgrades(ready plan.ReadyPods, labelChanges, annotationChanges map[string]*string) {
	driver, applies := s.basis.Decisions.Driver(s.nodePlan())
	installs := applies && (driver.Expectation == plan.Expected || driver.Expectation == plan.PausedByLabel)
	switch {
	case installs && s.node.Annotations[labels.UpgradeEnabled] != labels.True:
		annotationChanges[labels.UpgradeEnabled] = new(labels.True)
	case !installs && !keepsDriver(applies, driver):
		nodemarks.Metadata{Labels: labelChanges, Annotations: annotationChanges}.UnmarkUpgrades(s.node)
	}
	if installs {
		s.markUpToDate(ready, labelChanges)
	}
}

// resting returns what the node means for a plan of driver upgrades that has nothing to do for it; nil if a plan has to
// look at it, as it does if the pods of a node were not read on which a driver may be outdated.
func (s *scope) resting() *upgrade.Resting {
	if s.basis == nil {
		return nil
	}
	facts := &observe.UpgradeFacts{Node: s.node, Pods: s.pods, Now: s.now}
	cluster := upgrade.Cluster{Now: s.now}
	if s.basis.Decisions != nil && s.entry.Planned != nil {
		if s.pods.Operands == nil {
			return nil
		}
		planned := &s.entry.Planned.NodePlan
		facts.Decisions, facts.Planned = s.basis.Decisions, planned
		facts.DaemonSets, facts.GPUReady = s.basis.Stack.DaemonSets, s.entry.Latest.InService()
		cluster.Policies = map[string]upgrade.Policy{
			observe.UpgradeGroup(s.basis.Decisions.Input.Spec, planned): observe.UpgradePolicy(
				*planned.Spec.Driver.UpgradePolicy, 0, 0),
		}
	}
	node, _ := observe.UpgradeNode(facts)
	if !cluster.AtRest(&node) {
		return nil
	}
	return new(node.Resting())
}

// hasUpgrade reports whether the upgrade controller has a record on the node. Without a policy it ends the upgrade, or
// the drain for a MIG layout, which may uncordon the node, and removes the record.
func hasUpgrade(node *corev1.Node) bool {
	record, err := upgrade.DecodeRecord(node.Annotations[labels.UpgradeRecord])
	return err == nil && record.UID == node.UID || isDrained(node)
}

// isDrained reports whether the upgrade controller has a record of a drain for a MIG layout on the node.
func isDrained(node *corev1.Node) bool {
	drain, err := upgrade.DecodeDrain(node.Annotations[labels.MIGDrain])
	return err == nil && drain.UID == node.UID
}

// keepsDriver reports whether a driver that was installed stays although it cannot be installed now.
func keepsDriver(applies bool, driver plan.OperandOnNode) bool {
	return applies && driver.Expectation == plan.Refused
}

// markUpToDate writes the label upgrade-done on a node without an upgrade. It waits for the injector, so that a node
// that joins gets it together with the labels that are due then. Without automatic upgrades the label has no meaning.
func (s *scope) markUpToDate(ready plan.ReadyPods, changes map[string]*string) {
	state, labelled := s.node.Labels[labels.UpgradeState]
	_, recorded := s.node.Annotations[labels.UpgradeRecord]
	switch auto := *s.nodePlan().Spec.Driver.UpgradePolicy.AutoUpgrade; {
	case auto && !labelled && !recorded && ready.CurrentDriver && s.hasInjector(ready):
		changes[labels.UpgradeState] = new(string(upgrade.StateDone))
	case !auto && state == string(upgrade.StateDone):
		changes[labels.UpgradeState] = nil
	}
}

// hasInjector reports whether the injector is ready, or none is expected on the node.
func (s *scope) hasInjector(ready plan.ReadyPods) bool {
	if ready.Injector {
		return true
	}
	for _, onNode := range s.nodePlan().Essential {
		if o, known := s.Catalogue.Find(onNode.Operand); known && o.IsInjector && onNode.Expectation == plan.Expected {
			return false
		}
	}
	return true
}
