// Package validator derives from spec.validator the settings of containers that run checks of the validator.
package validator

import (
	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// Env returns the variables that spec.validator adds to the named containers, in whichever pods they run.
func Env(in operand.Input, containers ...string) map[string][]v1.EnvVar {
	components := map[string]*v1.ValidatorComponentSpec{
		"driver-validation":  in.Spec.Validator.Driver,
		"toolkit-validation": in.Spec.Validator.Toolkit,
		"cuda-validation":    in.Spec.Validator.CUDA,
		"plugin-validation":  in.Spec.Validator.Plugin,
	}
	env := map[string][]v1.EnvVar{}
	for _, name := range containers {
		env[name] = components[name].Env
	}
	return env
}
