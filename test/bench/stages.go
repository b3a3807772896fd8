package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// stages is how pods are simulated. The zero value is realistic.
type stages string

const (
	// realistic: the simulator runs init containers and validations in order, and each step takes some time.
	realistic stages = ""
	// fast: kwok's own fast stages. A pod is Ready as soon as it is bound; init containers do not run. The nodes have
	// the labels of both NFD and GPU Feature Discovery and allocatable GPUs from the beginning.
	fast stages = "fast"
	// delayed: as fast, but pods of the driver and of the container toolkit are Ready 0.2 s after they are bound, and all
	// others after 3 to 7 s.
	delayed stages = "delayed"
)

// delayedStages are the stages of kwok for delayed.
const delayedStages = "test/bench/stages/delayed.yaml"

// parseStages parses the option; realistic is the default.
func parseStages(text string) (stages, error) {
	switch text {
	case "", "realistic":
		return realistic, nil
	case string(fast), string(delayed):
		return stages(text), nil
	default:
		return "", fmt.Errorf("-stages=%s: want realistic, fast or delayed", text)
	}
}

// byKwok reports whether kwok simulates the pods, not the simulator.
func (s stages) byKwok() bool { return s != realistic }

// files returns the paths of the stages for kwok.
func (s stages) files(ctx context.Context) ([]string, error) {
	switch s {
	case fast:
		return cluster.FastPodStages(ctx)
	case delayed:
		file, err := filepath.Abs(filepath.FromSlash(delayedStages))
		return []string{file}, err
	default:
		return nil, nil
	}
}

// node returns the spec of all nodes.
func (s stages) node() simulator.NodeSpec {
	if !s.byKwok() {
		return simulator.NodeSpec{}
	}
	return simulator.NodeSpec{Advertised: true, Labels: map[string]string{
		// The label that GPU Feature Discovery writes for a GPU without MIG, as its container does not run.
		"nvidia.com/gfd.timestamp": "1750000000",
		"nvidia.com/gpu.product":   "NVIDIA-L40S",
		"nvidia.com/gpu.family":    "ampere",
		"nvidia.com/gpu.count":     "8",
		"nvidia.com/gpu.replicas":  "1",
		"nvidia.com/gpu.memory":    "46068",
		"nvidia.com/mig.capable":   "false",
		"nvidia.com/mig.strategy":  "single",
		"nvidia.com/mps.capable":   "false",
	}}
}
