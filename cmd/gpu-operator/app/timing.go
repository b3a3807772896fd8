package app

import (
	"github.com/clusterpolicy/gpu-operator/internal/controller/clusterpolicy"
	"github.com/clusterpolicy/gpu-operator/internal/controller/healthaction"
	"github.com/clusterpolicy/gpu-operator/internal/controller/neighbours"
	"github.com/clusterpolicy/gpu-operator/internal/controller/node"
	"github.com/clusterpolicy/gpu-operator/internal/controller/upgrade"
	"github.com/clusterpolicy/gpu-operator/internal/stack/apply"
	"github.com/clusterpolicy/gpu-operator/internal/status/statuswriter"
	"github.com/clusterpolicy/gpu-operator/internal/takeover/otheroperator"
)

// Timing is the timing of all controllers of the manager, and of the check for NVIDIA's operator.
type Timing struct {
	Apply   apply.Timing
	Status  statuswriter.Timing
	Policy  clusterpolicy.Timing
	Node    node.Timing
	Upgrade upgrade.Timing
	Health  healthaction.Timing
	Other   otheroperator.Timing
	// Neighbours is that of the looks for what others run on GPU nodes.
	Neighbours neighbours.Timing
}

// DefaultTiming returns the timing for production.
func DefaultTiming() Timing {
	return Timing{
		Apply:   apply.DefaultTiming(),
		Status:  statuswriter.DefaultTiming(),
		Policy:  clusterpolicy.DefaultTiming(),
		Node:    node.DefaultTiming(),
		Upgrade: upgrade.DefaultTiming(),
		Health:  healthaction.DefaultTiming(),
		Other:   otheroperator.DefaultTiming(),

		Neighbours: neighbours.DefaultTiming(),
	}
}
