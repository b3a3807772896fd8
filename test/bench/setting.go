package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// controlPlane is how the programs of the control plane run. The zero value is tuned.
type controlPlane string

const (
	// tuned: their garbage collection and the controller-manager are set so that they use less CPU.
	tuned controlPlane = ""
	// untuned: by their defaults.
	untuned controlPlane = "default"
	// minimal: only etcd and the API server run, tuned, and a placer makes the pods of DaemonSets. It is for sizes at
	// which the DaemonSet controller would need an hour.
	minimal controlPlane = "minimal"
)

// parseControlPlane parses the option; tuned is the default.
func parseControlPlane(text string) (controlPlane, error) {
	switch text {
	case "", "tuned":
		return tuned, nil
	case string(untuned), string(minimal):
		return controlPlane(text), nil
	default:
		return "", fmt.Errorf("-control-plane=%s: want tuned, default or minimal", text)
	}
}

// setting is what figures of different runs must have in common to be compared. The zero value is the default.
type setting struct {
	Stages       stages
	ControlPlane controlPlane
	// Other is the name and version of another operator that was measured in turn; empty if there was none.
	Other string
	// Policy is the file with this operator's policy; empty for the default sample.
	Policy string `json:",omitempty"`
}

// clusterOptions configures the control plane.
func (s setting) clusterOptions(ctx context.Context) (cluster.Options, error) {
	files, err := s.Stages.files(ctx)
	return cluster.Options{
		Stages: files, Untuned: s.ControlPlane == untuned, Bare: s.ControlPlane == minimal,
	}, err
}

// title identifies a size and a setting in the document.
func (s setting) title(nodes int) string {
	title := fmt.Sprintf("%d nodes", nodes)
	if s.Stages != realistic {
		title += fmt.Sprintf(", %s stages", s.Stages)
	}
	switch s.ControlPlane {
	case untuned:
		title += ", untuned control plane"
	case minimal:
		title += ", minimal control plane"
	case tuned:
	}
	if s.Other != "" {
		title += ", beside another operator"
	}
	if s.Policy != "" {
		title += ", " + s.policyName()
	}
	return title
}

// policyName is the name of the policy's file, without its folder and extension.
func (s setting) policyName() string {
	file := filepath.Base(s.Policy)
	return strings.TrimSuffix(file, filepath.Ext(file))
}

// heading is the title with the version of the other operator.
func (s setting) heading(nodes int) string {
	if s.Other == "" {
		return s.title(nodes)
	}
	return s.title(nodes) + ": " + s.Other
}

// key identifies the setting in the name of a file; empty for the default.
func (s setting) key() string {
	key := ""
	for _, part := range []string{string(s.Stages), string(s.ControlPlane)} {
		if part != "" {
			key += "-" + part
		}
	}
	if s.Other != "" {
		key += "-other"
	}
	if s.Policy != "" {
		key += "-" + s.policyName()
	}
	return key
}
