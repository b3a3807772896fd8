package assess

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// upgradeRecord returns the record of a driver upgrade that runs on the node or has failed there; nil if there is none,
// or if the label shows another state than the record.
func upgradeRecord(node *corev1.Node) *upgrade.Record {
	state := upgrade.State(node.Labels[labels.UpgradeState])
	if !state.InProgress() && state != upgrade.StateFailed {
		return nil
	}
	record, err := upgrade.DecodeRecord(node.Annotations[labels.UpgradeRecord])
	if err != nil || record.UID != node.UID || record.State != state {
		return nil
	}
	return record
}

// upgrades reports whether a driver upgrade runs on the node.
func (in Input) upgrades() bool { return in.record != nil && in.record.State.InProgress() }

// findRunningUpgrade finds that the driver of a node is upgraded, whatever keeps the node from being ready.
func findRunningUpgrade(in Input, so Assessment) finding {
	if !in.upgrades() {
		return finding{}
	}
	so.State, so.Reason = readiness.Progressing, v1.ReasonUpgrading
	so.Message = in.Node.Labels[labels.UpgradeState] + ": " + so.Message
	return finding{NodeVerdict: so.NodeVerdict}
}

// findFailedUpgrade finds why the upgrade of the node has failed.
func findFailedUpgrade(in Input, so Assessment) finding {
	if in.record == nil || in.record.State != upgrade.StateFailed {
		return finding{}
	}
	var found finding
	found.Reason = cmp.Or(in.record.Reason, v1.ReasonUpgradeFailed)
	found.Message = cmp.Or(in.record.Message, so.Message)
	if !so.Ready() {
		found.State = readiness.Failed
	}
	return found
}

// isRequested reports whether a user has requested the upgrade of the node: the annotation is removed when the upgrade
// gets its turn, and the record has it from then on.
func isRequested(node *corev1.Node) bool {
	if node.Annotations[labels.UpgradeRequested] == labels.True {
		return true
	}
	record, err := upgrade.DecodeRecord(node.Annotations[labels.UpgradeRecord])
	return err == nil && record.UID == node.UID && record.Requested &&
		(record.State == upgrade.StateRequired || record.State.InProgress())
}

// pendingUpgrade returns the message of a node whose driver is outdated. requested: a user has requested the upgrade.
func pendingUpgrade(node plan.NodePlan, requested bool) string {
	if requested || *node.Spec.Driver.UpgradePolicy.AutoUpgrade {
		return "driver is outdated: its upgrade is pending"
	}
	// The command comes first because long messages are truncated in the policy's status.
	return fmt.Sprintf("driver is outdated: kubectl annotate node %s %s=%s",
		node.Facts.Name, labels.UpgradeRequested, labels.True)
}

// outdatedMessage returns the message of an operand whose pod is outdated.
func outdatedMessage(in Input, onNode plan.OperandOnNode, pod *corev1.Pod) string {
	if onNode.Stage == v1.StageDriver {
		return pendingUpgrade(in.NodePlan, isRequested(in.Node))
	}
	return fmt.Sprintf("%s is outdated: kubectl -n %s delete pod %s", onNode.Operand, pod.Namespace, pod.Name)
}
