package validate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi"
)

// MIGStrategy is how the device plugin advertises MIG devices, and so which resources validate the plugin. The names
// are those of the device plugin's setting MIG_STRATEGY.
type MIGStrategy string

// The strategies. The empty one means unknown, and every GPU resource counts.
const (
	// MIGNone and MIGSingle: GPUs and MIG devices are both advertised as whole GPUs. A MIG resource on the
	// node is left over from another strategy, and no plugin serves it.
	MIGNone   MIGStrategy = "none"
	MIGSingle MIGStrategy = "single"
	// MIGMixed: each MIG profile has a resource of its own, and a GPU without MIG stays a whole one.
	MIGMixed MIGStrategy = "mixed"
)

// MIGStrategyNamed returns the strategy with this name; empty is allowed.
func MIGStrategyNamed(name string) (MIGStrategy, error) {
	switch s := MIGStrategy(name); s {
	case "", MIGNone, MIGSingle, MIGMixed:
		return s, nil
	}
	return "", fmt.Errorf("unknown MIG strategy %q; use %s, %s or %s", name, MIGNone, MIGSingle, MIGMixed)
}

// Plugin validates that a pod on this node can get a GPU from the device plugin.
type Plugin struct {
	Node     string
	Client   *nodeapi.Client
	Strategy MIGStrategy
	// TestPod is run once a GPU is allocatable. If nil, the kubelet's report suffices.
	TestPod func(ctx context.Context, resource string) error
}

// Check implements Check. It checks the allocatable resources, not the capacity: a node whose GPUs are all unhealthy
// keeps its capacity.
func (p Plugin) Check(ctx context.Context) ([]marker.Assignment, error) {
	node, err := p.Client.Node(ctx, p.Node)
	if err != nil {
		return nil, fmt.Errorf("the resources of node %s cannot be read: %w", p.Node, err)
	}
	usable := p.gpus(node.Status.Allocatable)
	if len(usable) == 0 {
		awaited := &awaitNode{plugin: p, version: node.Metadata.ResourceVersion, reason: p.noneUsable(node.Status)}
		if advertised(node.Status.Allocatable) == "" {
			// The device plugin has not registered yet, or none of its GPUs is healthy: the Node shows it.
			return nil, pendingDependency{awaited}
		}
		return nil, awaited
	}
	if p.TestPod == nil {
		return nil, nil
	}
	return nil, p.TestPod(ctx, usable[0])
}

// gpus returns the names of the resources that validate the plugin, MIG devices first: other pods are more likely to
// wait for a whole GPU.
func (p Plugin) gpus(resources map[string]resource.Quantity) []string {
	var names []string
	for name, quantity := range resources {
		if quantity.Sign() > 0 && labels.IsGPUResource(name) && (!isMIG(name) || p.Strategy == "" || p.Strategy == MIGMixed) {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		if isMIG(a) != isMIG(b) {
			return map[bool]int{true: -1, false: 1}[isMIG(a)]
		}
		return cmp.Compare(a, b)
	})
	return names
}

func isMIG(name string) bool { return strings.HasPrefix(name, labels.ResourceMIGPrefix) }

// noneUsable returns why no resource of the node validates the plugin.
func (p Plugin) noneUsable(resources nodeapi.Resources) string {
	if uncounted := advertised(resources.Allocatable); uncounted != "" {
		return fmt.Sprintf(
			"node %s advertises %s, but with the MIG strategy %s its GPUs must be nvidia.com/gpu; check spec.mig.strategy and "+
				"the configuration of the device plugin on this node", p.Node, uncounted, p.Strategy)
	}
	if unhealthy := advertised(resources.Capacity); unhealthy != "" {
		return fmt.Sprintf(
			"node %s has %s, but none can be allocated; see the log of the device plugin on this node for unhealthy GPUs",
			p.Node, unhealthy)
	}
	return fmt.Sprintf(
		"node %s advertises no GPU; see the log of the device plugin on this node, and check its configuration and MIG "+
			"strategy", p.Node)
}

// advertised lists the GPU resources, as NAME=NUMBER.
func advertised(resources map[string]resource.Quantity) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(resources)) {
		if quantity := resources[name]; labels.IsGPUResource(name) && quantity.Sign() > 0 {
			list = append(list, name+"="+quantity.String())
		}
	}
	return strings.Join(list, ", ")
}

// awaitNode is the error of a check that cannot succeed before the Node changes. It uses a watch rather than polling:
// the kubelet's report arrives within milliseconds, and 1,000 nodes that wait at the same time cost the API server as
// little as their kubelets' own watches.
type awaitNode struct {
	plugin  Plugin
	version string
	reason  string
}

func (a *awaitNode) Error() string { return a.reason }

// maxWatch is longer than any watch: by default an API server ends it after at most an hour. It is for connections that
// have died silently.
const maxWatch = 70 * time.Minute

// await has no other limit: the watch replaces polling of the Node.
func (a *awaitNode) await(ctx context.Context, _ time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, maxWatch)
	defer cancel()
	err := a.plugin.Client.AwaitNode(ctx, a.plugin.Node, a.version, func(node nodeapi.Node) bool {
		return len(a.plugin.gpus(node.Status.Allocatable)) > 0 || a.plugin.noneUsable(node.Status) != a.reason
	})
	// After a watch that is refused or breaks the usual pause follows.
	return err == nil || ctx.Err() != nil
}
