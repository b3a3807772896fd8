// Package gpunode has what the operands have in common whose program is gpu-node and that serve metrics: their image,
// which is the operator's unless the spec names another one, and their port.
package gpunode

import (
	"cmp"
	"fmt"
	"strconv"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/image"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// portEnv is the variable with the port of the metrics.
const portEnv = "METRICS_PORT"

// Image returns the image and the pull policy: those of the operand's block, which is at field, if it names an image,
// or else the helper image.
func Image(in operand.Input, spec v1.ImageSpec, field string) (image.Reference, string, error) {
	policy := cmp.Or(string(spec.ImagePullPolicy), string(in.HelperSpec().ImagePullPolicy))
	if image.Named(spec) {
		ref, err := image.Operator().Resolve(spec, "")
		if err != nil {
			return ref, "", fmt.Errorf("%s: %w", field, err)
		}
		return ref, policy, nil
	}
	ref, err := image.Helper(in.HelperSpec(), in.OperatorImage)
	if err != nil {
		return ref, "", fmt.Errorf("spec.validator: %w", err)
	}
	return ref, policy, nil
}

// Port returns the port that the program listens on, by its variables in the block at field. The probes and the Service
// use it.
func Port(env []v1.EnvVar, fallback int, field string) (int, error) {
	for _, variable := range env {
		if variable.Name != portEnv || variable.Value == "" {
			continue
		}
		port, err := strconv.Atoi(variable.Value)
		if err != nil || port < 1 || port > 65535 {
			return 0, fmt.Errorf("%s.env: %s is %q: it must be a number from 1 to 65535", field, portEnv, variable.Value)
		}
		return port, nil
	}
	return fallback, nil
}
