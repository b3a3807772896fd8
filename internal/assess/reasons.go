package assess

import (
	"k8s.io/apimachinery/pkg/util/sets"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// passing are the reasons of nodes that only need time; decided those of nodes that a person keeps from being ready.
var (
	passing = sets.New(v1.ReasonStarting, v1.ReasonWaitingForOperand, v1.ReasonPodMissing, v1.ReasonPodPending,
		v1.ReasonNotAllocatable, v1.ReasonNodeNotReady, v1.ReasonUntoleratedTaint, v1.ReasonDiscoveryLabelsMissing, v1.ReasonStartupTaint)
	decided = sets.New(v1.ReasonExcluded, v1.ReasonNotSelected, v1.ReasonOperandPaused)
)

// Passes reports whether a node that is not ready for this reason only needs time.
func Passes(reason string) bool { return passing.Has(reason) }

// Fails reports whether a node that is not ready for this reason has failed, rather than to need time or to be kept from
// being ready by a person. A node that is overdue has failed too, with the reason that it had before.
func Fails(reason string) bool { return !passing.Has(reason) && !decided.Has(reason) }
