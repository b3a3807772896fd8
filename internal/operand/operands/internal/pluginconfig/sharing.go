package pluginconfig

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
)

// The format of the device plugin's configuration, api/config/v1 of NVIDIA/k8s-device-plugin, as far as it is about
// sharing.
type (
	file struct {
		Version string      `json:"version"`
		Sharing fileSharing `json:"sharing"`
	}
	fileSharing struct {
		TimeSlicing *fileReplicated `json:"timeSlicing,omitempty"`
		MPS         *fileReplicated `json:"mps,omitempty"`
	}
	fileReplicated struct {
		RenameByDefault            *bool          `json:"renameByDefault,omitempty"`
		FailRequestsGreaterThanOne *bool          `json:"failRequestsGreaterThanOne,omitempty"`
		Resources                  []fileResource `json:"resources"`
	}
	fileResource struct {
		Name     string `json:"name"`
		Replicas int32  `json:"replicas"`
	}
)

// fileVersion is the only version of the format.
const fileVersion = "v1"

// ErrMPSWithMixed is the error for GPUs that MPS is to share beside MIG devices: the device plugin would not start.
var ErrMPSWithMixed = errors.New("MPS cannot share GPUs with mig.strategy mixed: use timeSlicing")

// SharesByMPS reports whether the spec shares GPUs by MPS, whatever a ConfigMap has.
func SharesByMPS(in operand.Input) bool {
	sharing := in.Spec.Sharing
	return sharing != nil && sharing.MPS != nil && effective.Shares(sharing.MPS.Replicas)
}

// ofSharing returns the configuration from spec.sharing, or nil if it shares nothing.
func ofSharing(in operand.Input) (*operand.PluginConfig, error) {
	spec := in.Spec.Sharing
	var sharing fileSharing
	switch {
	case spec.TimeSlicing != nil:
		sharing.TimeSlicing = timeSlicing(*spec.TimeSlicing)
	case SharesByMPS(in):
		if in.Spec.MIG.Strategy == v1.MIGStrategyMixed {
			return nil, fmt.Errorf("spec.sharing.mps: %w", ErrMPSWithMixed)
		}
		sharing.MPS = &fileReplicated{
			RenameByDefault:            spec.MPS.RenameByDefault,
			FailRequestsGreaterThanOne: spec.MPS.FailRequestsGreaterThanOne,
			Resources:                  []fileResource{{Name: labels.ResourceGPU, Replicas: spec.MPS.Replicas}},
		}
	}
	if sharing == (fileSharing{}) {
		return nil, nil //nolint:nilnil // As without spec.sharing.
	}
	content, err := yaml.Marshal(file{Version: fileVersion, Sharing: sharing})
	if err != nil {
		return nil, fmt.Errorf("encoding the configuration of the device plugin: %w", err)
	}
	return &operand.PluginConfig{Content: string(content)}, nil
}

// timeSlicing returns the block of the file, nil if it shares nothing. An entry of its own for whole GPUs takes
// precedence over Replicas.
func timeSlicing(spec v1.TimeSlicingSpec) *fileReplicated {
	replicas := map[string]int32{labels.ResourceGPU: spec.Replicas}
	for _, resource := range spec.ResourceReplicas {
		replicas[resource.Name] = cmp.Or(resource.Replicas, spec.Replicas)
	}
	var shared []fileResource
	for _, name := range slices.Sorted(maps.Keys(replicas)) {
		if effective.Shares(replicas[name]) {
			shared = append(shared, fileResource{Name: name, Replicas: replicas[name]})
		}
	}
	if shared == nil {
		return nil
	}
	return &fileReplicated{
		RenameByDefault: spec.RenameByDefault, FailRequestsGreaterThanOne: spec.FailRequestsGreaterThanOne, Resources: shared,
	}
}
