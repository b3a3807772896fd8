package nodemarks

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// Metadata are changes of the labels and annotations of a Node; nil removes a key.
type Metadata struct {
	Labels, Annotations map[string]*string
}

// HadOperands reports whether the operator has certainly managed the node. On another one, labels such as
// nvidia.com/gpu.present and nvidia.com/gpu.deploy.driver are an administrator's.
func HadOperands(node *corev1.Node) bool {
	_, hasPool := node.Labels[labels.Pool]
	_, isLost := node.Annotations[labels.DiscoveryLostSince]
	return hasPool || isLost || assess.GPUReadyCondition(node) != nil || node.Labels[labels.Layout] != ""
}

// WasWritten reports whether the operator or its node discovery has certainly written to the node.
func WasWritten(node *corev1.Node) bool {
	_, isTainted := node.Annotations[labels.StartupTaints]
	_, isActedOn := node.Annotations[labels.HealthRecord]
	_, isDrained := node.Annotations[labels.MIGDrain]
	return isTainted || isActedOn || isDrained || HadOperands(node) || IsMarked(node)
}

// IsMarked reports whether the node has labels or annotations which show that pods of the stack may have run on it.
func IsMarked(node *corev1.Node) bool {
	_, discovered := node.Annotations[labels.DiscoveredLabels]
	_, counted := node.Annotations[labels.GPUsOnBus]
	_, watched := node.Annotations[labels.GPUHealth]
	return discovered || counted || watched || node.Labels[labels.Pool] != "" || node.Labels[labels.Layout] != "" ||
		node.Labels[labels.Cleanup] != ""
}

// Released returns the changes that release a node, but for what the upgrade controller wrote: it may have to uncordon
// the node first. present is the value of nvidia.com/gpu.present for a node that has lost its GPUs; empty if the policy
// is deleted, which removes everything.
func Released(catalogue operand.Catalogue, node *corev1.Node, present string) Metadata {
	changes := Metadata{Labels: map[string]*string{}, Annotations: map[string]*string{}}
	if HadOperands(node) {
		changes.Labels = plan.ReleasedLabels(catalogue, node.Labels, present)
	}
	if _, cleaned := node.Labels[labels.Cleanup]; cleaned {
		changes.Labels[labels.Cleanup] = nil
	}
	changes.forget(node, labels.DiscoveryMissingSince)
	changes.forget(node, labels.GPUHealth)
	changes.forget(node, labels.PluginConfigRead)
	changes.forget(node, labels.ReadyBoot)
	changes.forget(node, labels.ReportRecord)
	if present == "" {
		// Until then it marks the label as the operator's.
		changes.forget(node, labels.DiscoveryLostSince)
	}
	changes.UnmarkUpgrades(node)
	if present == "" {
		changes.removeDiscoveryLabels(node)
		changes.removeMIGLayout(node)
	}
	return changes
}

// UnmarkUpgrades adds the removal of what the node controller has written for driver upgrades. The label of a node with
// a record is the upgrade controller's: the node may have to be uncordoned first.
func (m Metadata) UnmarkUpgrades(node *corev1.Node) {
	m.forget(node, labels.UpgradeEnabled)
	_, recorded := node.Annotations[labels.UpgradeRecord]
	if !recorded && node.Labels[labels.UpgradeState] == string(upgrade.StateDone) {
		m.Labels[labels.UpgradeState] = nil
	}
}

// DropUpgrade adds the removal of what is left of driver upgrades when the stack is removed: the state that NVIDIA's
// operator or a user has set, and records that the upgrade controller ignores.
func (m Metadata) DropUpgrade(node *corev1.Node) {
	if _, there := node.Labels[labels.UpgradeState]; there {
		m.Labels[labels.UpgradeState] = nil
	}
	m.forget(node, labels.UpgradeRecord)
	m.forget(node, labels.UpgradeInitialCordon)
	m.forget(node, labels.MIGDrain)
}

// removeDiscoveryLabels adds the removal of what node discovery has written: its pods are deleted with the policy.
func (m Metadata) removeDiscoveryLabels(node *corev1.Node) {
	keys, discovered := node.Annotations[labels.DiscoveredLabels]
	m.forget(node, labels.GPUsOnBus)
	if !discovered {
		return
	}
	m.Annotations[labels.DiscoveredLabels] = nil
	for key := range strings.SplitSeq(keys, ",") {
		// Other clients can edit the annotation: only labels that discovery may write are removed.
		if _, there := node.Labels[key]; there && labels.IsDiscoverable(key) {
			m.Labels[key] = nil
		}
	}
}

// RecordMIGLayout adds the annotation by which the MIG layout that the changes set is known as the operator's.
func (m Metadata) RecordMIGLayout() {
	if layout := m.Labels[labels.MIGConfig]; layout != nil {
		m.Annotations[labels.MIGConfigWritten] = layout
	}
}

// removeMIGLayout adds the removal of the MIG layout that the operator has requested; one that a user has set stays.
// The state of the layout is removed in both cases, because the MIG manager, which writes it, is removed too.
func (m Metadata) removeMIGLayout(node *corev1.Node) {
	written, recorded := node.Annotations[labels.MIGConfigWritten]
	if layout, there := node.Labels[labels.MIGConfig]; there && recorded && layout == written {
		m.Labels[labels.MIGConfig] = nil
	}
	if _, there := node.Labels[labels.MIGConfigState]; there && HadOperands(node) {
		m.Labels[labels.MIGConfigState] = nil
	}
	m.forget(node, labels.MIGConfigWritten)
}

// forget adds the removal of an annotation, if the node has it.
func (m Metadata) forget(node *corev1.Node, key string) {
	if _, there := node.Annotations[key]; there {
		m.Annotations[key] = nil
	}
}
