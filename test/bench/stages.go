package main

import (
	"context"
	"fmt"

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
)

// parseStages parses the option; realistic is the default.
func parseStages(text string) (stages, error) {
	switch text {
	case "", "realistic":
		return realistic, nil
	case string(fast):
		return fast, nil
	default:
		return "", fmt.Errorf("-stages=%s: want realistic or fast", text)
	}
}

// clusterOptions configures kwok with the stages.
func (s stages) clusterOptions(ctx context.Context) (cluster.Options, error) {
	if s != fast {
		return cluster.Options{}, nil
	}
	files, err := cluster.FastPodStages(ctx)
	return cluster.Options{Stages: files}, err
}

// node returns the spec of all nodes.
func (s stages) node() simulator.NodeSpec {
	if s != fast {
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

// title returns the heading of a size in the document.
func (s stages) title(nodes int) string {
	if s == fast {
		return fmt.Sprintf("%d nodes, fast stages", nodes)
	}
	return fmt.Sprintf("%d nodes", nodes)
}
