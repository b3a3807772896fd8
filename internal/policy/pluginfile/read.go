package pluginfile

import (
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/clusterpolicy/gpu-operator/internal/kube/yamlnode"
)

// Strategy is flags.migStrategy of a configuration, and its line; zero if it has none.
type Strategy struct {
	Value string
	Line  int
}

// MIGStrategy returns flags.migStrategy of a configuration.
func MIGStrategy(data []byte) Strategy {
	if strategy := at(parsed(data), "flags.migStrategy"); strategy != nil {
		return Strategy{Value: strategy.Value, Line: strategy.Line}
	}
	return Strategy{}
}

// MPSLine returns the line of sharing.mps of a configuration, 0 if it has none.
func MPSLine(data []byte) int {
	if mps := at(parsed(data), "sharing.mps"); mps != nil {
		return mps.Line
	}
	return 0
}

// Replicas returns how many pods share a device of a resource by a configuration, 0 if it does not share them.
func Replicas(data []byte, resource string) int {
	root := parsed(data)
	// The device plugin prefers MPS.
	for _, strategy := range []string{"sharing.mps", "sharing.timeSlicing"} {
		block := at(root, strategy)
		if block == nil || block.Kind != yaml.MappingNode {
			continue
		}
		if count := replicasIn(yamlnode.Field(block, "resources"), resource); count > 0 {
			return count
		}
	}
	return 0
}

// replicasIn returns the replicas of a resource in a list, nil for none; 0 if it does not have it, or no number for it.
func replicasIn(resources *yaml.Node, resource string) int {
	if resources == nil || resources.Kind != yaml.SequenceNode {
		return 0
	}
	for _, shared := range resources.Content {
		if shared.Kind != yaml.MappingNode {
			continue
		}
		name, replicas := yamlnode.Field(shared, "name"), yamlnode.Field(shared, "replicas")
		if name == nil || replicas == nil || strings.TrimPrefix(name.Value, prefix) != strings.TrimPrefix(resource, prefix) {
			continue
		}
		count, _ := number(replicas)
		return count
	}
	return 0
}
