package assess

import (
	"k8s.io/apimachinery/pkg/util/sets"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// transientReasons are the reasons of nodes that only need time; intendedReasons those of nodes that a person keeps from being ready.
var (
	transientReasons = sets.New(v1.ReasonStarting, v1.ReasonWaitingForOperand, v1.ReasonPodMissing, v1.ReasonPodPending,
		v1.ReasonNotAllocatable, v1.ReasonNodeNotReady, v1.ReasonUntoleratedTaint, v1.ReasonDiscoveryLabelsMissing, v1.ReasonStartupTaint)
	intendedReasons = sets.New(v1.ReasonExcluded, v1.ReasonNotSelected, v1.ReasonOperandPaused)
)

// IsTransient reports whether a node that is not ready for this reason only needs time.
func IsTransient(reason string) bool { return transientReasons.Has(reason) }

// IsFailure reports whether a node that is not ready for this reason has failed, rather than to need time or to be kept from
// being ready by a person. A node that is overdue has failed too, with the reason that it had before.
func IsFailure(reason string) bool {
	return !transientReasons.Has(reason) && !intendedReasons.Has(reason)
}
