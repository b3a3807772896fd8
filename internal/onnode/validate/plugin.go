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

	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi"
)

// MIGStrategy is how the device plugin offers MIG devices; it decides which resources prove the
// plugin. The names are those of the device plugin's own setting MIG_STRATEGY.
type MIGStrategy string

// The strategies. The empty one is that it is not known, and every GPU resource counts.
const (
	// MIGNone and MIGSingle: GPUs and MIG devices alike are offered as whole GPUs. What a node
	// still lists as a MIG device is left over from another strategy, and no plugin serves it.
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
	return "", fmt.Errorf("there is no MIG strategy %q; use %s, %s or %s", name, MIGNone, MIGSingle, MIGMixed)
}

// Plugin proves that a pod on this node can get a GPU from the device plugin.
type Plugin struct {
	Node     string
	Client   *nodeapi.Client
	Strategy MIGStrategy
	// Workload is tried once a GPU can be allocated. Nil: what the kubelet reports is proof enough.
	Workload func(ctx context.Context, resource string) error
}

// Check is a Check. It looks at what is allocatable, not at the capacity: a node whose GPUs are all
// unhealthy keeps its capacity.
func (p Plugin) Check(ctx context.Context) ([]marker.Assignment, error) {
	node, err := p.Client.Node(ctx, p.Node)
	if err != nil {
		return nil, fmt.Errorf("the resources of node %s are not known: %w", p.Node, err)
	}
	offered := p.gpus(node.Status.Allocatable)
	if len(offered) == 0 {
		awaited := &awaitNode{plugin: p, version: node.Metadata.ResourceVersion, reason: p.noneOffered(node.Status)}
		if advertised(node.Status.Allocatable) == "" {
			// The device plugin has not registered yet, or none of its GPUs is healthy: the Node shows it.
			return nil, onItsWay{awaited}
		}
		return nil, awaited
	}
	if p.Workload == nil {
		return nil, nil
	}
	return nil, p.Workload(ctx, offered[0])
}

// gpus returns the names of the resources that prove the plugin, MIG devices first: a whole GPU is
// what other work is more likely to wait for.
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

// noneOffered says why no resource of the node proves the plugin.
func (p Plugin) noneOffered(resources nodeapi.Resources) string {
	if uncounted := advertised(resources.Allocatable); uncounted != "" {
		return fmt.Sprintf(
			"node %s offers %s, but no nvidia.com/gpu, as which the MIG strategy %s offers GPUs; check spec.mig.strategy and "+
				"the configuration of the device plugin on this node",
			p.Node, uncounted, p.Strategy)
	}
	if unhealthy := advertised(resources.Capacity); unhealthy != "" {
		return fmt.Sprintf(
			"node %s has %s, but none can be allocated; see the log of the device plugin on this node for unhealthy GPUs",
			p.Node, unhealthy)
	}
	return fmt.Sprintf(
		"node %s advertises no GPU; see the log of the device plugin on this node, and check its configuration and MIG "+
			"strategy",
		p.Node)
}

// advertised lists the GPUs of all names, as NAME=NUMBER.
func advertised(resources map[string]resource.Quantity) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(resources)) {
		if quantity := resources[name]; labels.IsGPUResource(name) && quantity.Sign() > 0 {
			list = append(list, name+"="+quantity.String())
		}
	}
	return strings.Join(list, ", ")
}

// awaitNode is the error of a check that cannot succeed before the Node changes. It is told by a
// watch rather than by asking again and again: the kubelet's report is heard within milliseconds, and
// 1,000 nodes that wait at the same time cost the API server as little as their kubelets' own watches.
type awaitNode struct {
	plugin  Plugin
	version string
	reason  string
}

func (a *awaitNode) Error() string { return a.reason }

// maxWatch is longer than any watch lasts: by default an API server ends it after at most an hour. It is
// for a connection that has died and does not tell so.
const maxWatch = 70 * time.Minute

// await has no other bound: to read the Node from time to time would be what the watch is to spare.
func (a *awaitNode) await(ctx context.Context, _ time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, maxWatch)
	defer cancel()
	err := a.plugin.Client.AwaitNode(ctx, a.plugin.Node, a.version, func(node nodeapi.Node) bool {
		return len(a.plugin.gpus(node.Status.Allocatable)) > 0 || a.plugin.noneOffered(node.Status) != a.reason
	})
	// A watch that is refused or breaks is replaced by the usual pause; the end of ctx is its own.
	return err == nil || ctx.Err() != nil
}
