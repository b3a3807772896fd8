package validate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi"
)

// Plugin proves that a pod on this node can get a GPU from the device plugin.
type Plugin struct {
	Node   string
	Client *nodeapi.Client
}

// Check is a Check. It looks at what is allocatable, not at the capacity: a node whose GPUs are all
// unhealthy keeps its capacity.
func (p Plugin) Check(ctx context.Context) ([]marker.Assignment, error) {
	resources, err := p.Client.Resources(ctx, p.Node)
	if err != nil {
		return nil, fmt.Errorf("the resources of node %s are not known: %w", p.Node, err)
	}
	for name, quantity := range resources.Allocatable {
		if labels.IsGPUResource(name) && quantity.Sign() > 0 {
			return nil, nil
		}
	}
	var advertised []string
	for _, name := range slices.Sorted(maps.Keys(resources.Capacity)) {
		if quantity := resources.Capacity[name]; labels.IsGPUResource(name) && quantity.Sign() > 0 {
			advertised = append(advertised, name+"="+quantity.String())
		}
	}
	if len(advertised) > 0 {
		return nil, fmt.Errorf("node %s has %s, but none can be allocated; see the log of the device plugin on this node for unhealthy GPUs",
			p.Node, strings.Join(advertised, ", "))
	}
	return nil, fmt.Errorf("node %s advertises no GPU; see the log of the device plugin on this node, and check its configuration and MIG strategy", p.Node)
}
