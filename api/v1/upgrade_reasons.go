package v1

// Reasons of a node's driver upgrade, in status.nodes[].upgrade. A driver or a validator that is not ready has the
// reason of its pod instead.
const (
	// ReasonUpgradeManual: the driver is outdated, and upgrades are not automatic.
	// Cause: autoUpgrade is false, or the upgradePolicy is absent.
	// Remedy: annotate the node with nvidia.com/gpu-driver-upgrade-requested=true, or set autoUpgrade to true.
	ReasonUpgradeManual = "UpgradeManual"
	// ReasonUpgradePaused: no upgrade starts, because paused is true in the upgradePolicy.
	// Cause: a user has set it.
	// Remedy: remove it.
	ReasonUpgradePaused = "UpgradePaused"
	// ReasonUpgradeSkipped: the node is excluded from upgrades.
	// Cause: it has the label nvidia.com/gpu-driver-upgrade.skip=true.
	// Remedy: remove the label.
	ReasonUpgradeSkipped = "UpgradeSkipped"
	// ReasonUpgradeQueued: as many nodes as maxParallelUpgrades allows have a place, or the MIG layout of the node is
	// being changed.
	// Cause: normal operation.
	// Remedy: wait, or raise maxParallelUpgrades.
	ReasonUpgradeQueued = "UpgradeQueued"
	// ReasonUpgradeBudget: as many nodes as maxUnavailable allows are unavailable.
	// Cause: nodes are cordoned, not ready or being upgraded; the message names some.
	// Remedy: repair or uncordon them, or raise maxUnavailable.
	ReasonUpgradeBudget = "UpgradeBudget"
	// ReasonUpgradeNodeNotReady: the kubelet of the node does not report.
	// Cause: the machine is down or has lost its network.
	// Remedy: repair the node. The upgrade then continues, or is tried again.
	ReasonUpgradeNodeNotReady = "UpgradeNodeNotReady"
	// ReasonUpgradePulling: the images of the new driver are being pulled; the old one still works.
	// Cause: normal operation.
	// Remedy: wait. Set pullImages to false to skip this step.
	ReasonUpgradePulling = "UpgradePulling"
	// ReasonUpgradePullFailed: an image of the new driver cannot be pulled, so that the node keeps its old one.
	// Cause: the tag does not exist for the node's system or kernel, or the registry rejects the pull.
	// Remedy: correct the version, the repository or the pull secret that the message names.
	ReasonUpgradePullFailed = "UpgradePullFailed"
	// ReasonUpgradeWaitingForJobs: the node is cordoned and waits for pods that waitForCompletion selects.
	// Cause: the pods that the message names still run.
	// Remedy: wait, or delete the pods.
	ReasonUpgradeWaitingForJobs = "UpgradeWaitingForJobs"
	// ReasonUpgradeEvicting: pods with GPUs are being evicted and have not ended yet.
	// Cause: normal operation; a pod may take as long as its grace period.
	// Remedy: wait.
	ReasonUpgradeEvicting = "UpgradeEvicting"
	// ReasonUpgradeBlocked: a pod with GPUs cannot be evicted.
	// Cause: the PodDisruptionBudget that the message names allows no disruption, podDeletion does not permit it, or an
	// admission webhook rejects it. Or the node would start the pod again, as one of a DaemonSet.
	// Remedy: make room for the pod elsewhere, delete it, or do what the message says.
	ReasonUpgradeBlocked = "UpgradeBlocked"
	// ReasonUpgradeRestarting: the old driver pod ends, or the new one starts.
	// Cause: normal operation.
	// Remedy: wait.
	ReasonUpgradeRestarting = "UpgradeRestarting"
	// ReasonUpgradeValidating: the new driver is ready, and its validation has not passed yet.
	// Cause: normal operation.
	// Remedy: wait; if it does not end, see the log of the validator's pod on the node.
	ReasonUpgradeValidating = "UpgradeValidating"
	// ReasonUpgradeUncordoned: another client has uncordoned the node during its upgrade, so the upgrade has ended.
	// Cause: kubectl uncordon, or another controller.
	// Remedy: annotate the node with nvidia.com/gpu-driver-upgrade-requested=true to try again.
	ReasonUpgradeUncordoned = "UpgradeUncordoned"
	// ReasonUpgradeUnknownState: the node has an upgrade state that this operator does not know, so that its driver is
	// not upgraded.
	// Cause: another client has written the label nvidia.com/gpu-driver-upgrade-state, or a later release of the operator
	// before a rollback. Other nodes do not wait for it.
	// Remedy: after a rollback, install the later release again: only it knows whose the cordon is. Otherwise remove the
	// label: the node goes on from its record, if it has one, and the operator undoes its own cordon in the end. Any other
	// cordon stays: uncordon the node unless someone works on it.
	ReasonUpgradeUnknownState = "UpgradeUnknownState"
)

// EventDriverUpgrade is the reason of the Events on a node about its driver upgrade.
const EventDriverUpgrade = "GPUDriverUpgrade"

// EventMIGDrain is the reason of the Events on a node that is drained for a MIG layout.
const EventMIGDrain = "GPUMIGDrain"
