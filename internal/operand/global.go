package operand

import (
	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// Global is spec.global, which holds for every container of the stack.
func (in Input) Global() v1.GlobalSpec {
	if in.Spec.Global == nil {
		return v1.GlobalSpec{}
	}
	return *in.Spec.Global
}

// Paused tells whether nothing may be written but status.
func (in Input) Paused() bool { return IsTrue(in.Spec.Paused, false) }
