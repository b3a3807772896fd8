// Package mig derives from spec.mig the settings of operands that advertise or count MIG devices.
package mig

import (
	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// Values are the template values that configure how MIG devices are advertised.
type Values struct {
	// SetMIGStrategy: the spec sets a strategy; otherwise the default of the program applies.
	SetMIGStrategy bool
	MIGStrategy    string
	// MonitorMIG: the program needs access to the MIG devices of all GPUs.
	MonitorMIG bool
}

// Of returns the values that spec.mig sets. Without a strategy there, the program may read one from the configuration
// of its node, so it gets the MIG devices too.
func Of(in operand.Input) Values {
	strategy := in.Spec.MIG.Strategy
	return Values{
		SetMIGStrategy: strategy != "", MIGStrategy: string(strategy),
		MonitorMIG: strategy != v1.MIGStrategyNone,
	}
}

// Varies reports whether a node pool overrides the MIG strategy.
func Varies(nodePool v1.NodePoolSpec) bool { return nodePool.MIG != nil && nodePool.MIG.Strategy != "" }

// AddTo appends the variables from which the programs of the device plugin's image read the MIG strategy.
func (v Values) AddTo(env *operand.Env) {
	env.AddIf(v.SetMIGStrategy, "MIG_STRATEGY", v.MIGStrategy)
	env.AddIf(v.MonitorMIG, "NVIDIA_MIG_MONITOR_DEVICES", "all")
}
