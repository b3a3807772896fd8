package assess

import (
	"k8s.io/apimachinery/pkg/util/sets"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// transientReasons are the reasons of nodes that need only time; intendedReasons those of nodes that a user's decision
// keeps from being ready.
var (
	transientReasons = sets.New(
		v1.ReasonStarting, v1.ReasonWaitingForOperand, v1.ReasonPodMissing, v1.ReasonPodPending,
		v1.ReasonNotAllocatable, v1.ReasonDevicePluginOff, v1.ReasonNodeNotReady, v1.ReasonUntoleratedTaint,
		v1.ReasonDiscoveryLabelsMissing, v1.ReasonStartupTaint, v1.ReasonUpgrading, v1.ReasonMIGConfigPending,
		v1.ReasonMIGConfigMismatch,
	)
	// limitedReasons are those that a ready node reports, too: its GPUs can be used, but not as requested.
	limitedReasons = sets.New(
		v1.ReasonDiscoveryLabelsMissing, v1.ReasonGPUsUnhealthy, v1.ReasonGPUsMissing, v1.ReasonMIGConfigMismatch,
		v1.ReasonPluginConfigInvalid, v1.ReasonMIGConfigHeld, v1.ReasonMIGConfigDraining, v1.ReasonGPUPodsRefused,
		v1.ReasonDuplicateDevicePlugin, v1.ReasonDuplicateOperand, v1.ReasonGPUsOfferedTwice,
	)
	intendedReasons = sets.New(v1.ReasonExcluded, v1.ReasonNotSelected, v1.ReasonOperandPaused)
	// keptOffReasons are those of nodes whose GPUs a label or a field takes away from pods.
	keptOffReasons = sets.New(v1.ReasonExcluded, v1.ReasonDevicePluginOff)
)

// IsKeptOff reports whether a label or a field of the policy takes the GPUs of a node with this reason away from pods.
func IsKeptOff(reason string) bool { return keptOffReasons.Has(reason) }

// IsTransient reports whether a node that is not ready for this reason needs only time.
func IsTransient(reason string) bool { return transientReasons.Has(reason) }

// IsFailure reports whether a node that is not ready for this reason has failed. A node whose deadline has passed has
// failed too, but keeps its transient reason.
func IsFailure(reason string) bool {
	return !transientReasons.Has(reason) && !intendedReasons.Has(reason)
}
