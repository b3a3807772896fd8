// Package mig holds what operands that offer or count MIG devices read from spec.mig.
package mig

import (
	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// Values are what templates insert where a program is told how MIG devices are offered.
type Values struct {
	// SetMIGStrategy tells that the spec names a strategy; otherwise the program's own default holds.
	SetMIGStrategy bool
	MIGStrategy    string
	// MonitorMIG: the program looks at the MIG devices of all GPUs.
	MonitorMIG bool
}

// Of is what the spec says of MIG devices.
func Of(in operand.Input) Values {
	strategy := in.Spec.MIG.Strategy
	return Values{
		SetMIGStrategy: strategy != "", MIGStrategy: string(strategy),
		MonitorMIG: strategy != "" && strategy != v1.MIGStrategyNone,
	}
}

// Varies tells whether a pool says something else of what MIG devices are called.
func Varies(pool v1.NodePoolSpec) bool { return pool.MIG != nil && pool.MIG.Strategy != "" }

// AddTo appends the variables by which the programs of the device plugin's image read the MIG strategy.
func (v Values) AddTo(env *operand.Env) {
	env.AddIf(v.SetMIGStrategy, "MIG_STRATEGY", v.MIGStrategy)
	env.AddIf(v.MonitorMIG, "NVIDIA_MIG_MONITOR_DEVICES", "all")
}
