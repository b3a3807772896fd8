package app

import (
	"github.com/clusterpolicy/gpu-operator/internal/apply"
	"github.com/clusterpolicy/gpu-operator/internal/controller/clusterpolicy"
	"github.com/clusterpolicy/gpu-operator/internal/controller/node"
	"github.com/clusterpolicy/gpu-operator/internal/statuswriter"
)

// Timing are the waits of all that the manager runs.
type Timing struct {
	Apply  apply.Timing
	Status statuswriter.Timing
	Policy clusterpolicy.Timing
	Node   node.Timing
}

// DefaultTiming returns the waits of production.
func DefaultTiming() Timing {
	return Timing{
		Apply:  apply.DefaultTiming(),
		Status: statuswriter.DefaultTiming(),
		Policy: clusterpolicy.DefaultTiming(),
		Node:   node.DefaultTiming(),
	}
}
