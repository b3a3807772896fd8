package operand

import (
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// NodeFacts are the facts about a node that decide what it needs. They are read from the Node and
// from nothing else.
type NodeFacts struct {
	// Name of the node.
	Name string
	// HasGPU tells that the discovery labels show a GPU of NVIDIA.
	HasGPU bool
	// WasGPU tells that the operator has marked the node as a GPU node before.
	WasGPU bool
	// Discovered tells that the node has any discovery label.
	Discovered bool
	// Excluded tells that a user keeps all operands off the node.
	Excluded bool
	// Workload of the node.
	Workload Workload
	// OSID and OSVersion are ID and VERSION_ID of /etc/os-release.
	OSID, OSVersion string
	// Architecture of the node in Go's terms, such as amd64.
	Architecture string
	// Kernel release.
	Kernel string
	// Runtime is the container runtime without its version, such as containerd.
	Runtime string
	// MIGCapable and MPSCapable are what GPU Feature Discovery says of the GPUs: "true", "false", or
	// empty as long as it has not looked.
	MIGCapable, MPSCapable string
	// Product is the name of the GPU, by GPU Feature Discovery.
	Product string
	// HostVGPU tells that the node lends its GPUs to virtual machines by the vGPU manager.
	HostVGPU bool
	// Pool is the pool that the node is labelled with.
	Pool string
	// Deploy are the deploy labels of the node, by operand.
	Deploy map[Name]string
}

// Pool is a set of nodes that share one driver image: same operating system, version and
// architecture.
type Pool struct {
	// Name of the pool, such as ubuntu24.04-amd64; a label value.
	Name string
	// OSTag is the end of the driver image's tag, such as ubuntu24.04.
	OSTag string
	// Nodes in the pool.
	Nodes int
}

// majorOnly are the operating systems whose driver images are published per major version.
var majorOnly = map[string]bool{"rhel": true, "rocky": true, "ol": true}

// OSTag is the end of the tag of a driver image for the node, or empty if a fact is missing.
func (f NodeFacts) OSTag() string {
	if f.OSID == "" || f.OSVersion == "" {
		return ""
	}
	version := f.OSVersion
	if majorOnly[f.OSID] {
		version, _, _ = strings.Cut(version, ".")
	}
	return f.OSID + version
}

// WantedPool is the pool that the node's facts put it in, or false if a fact is missing.
func (f NodeFacts) WantedPool() (Pool, bool) {
	tag := f.OSTag()
	if tag == "" || f.Architecture == "" {
		return Pool{}, false
	}
	name := tag + "-" + f.Architecture
	// The name becomes a label value. What is none comes from labels that nobody's discovery writes.
	return Pool{Name: name, OSTag: tag}, len(validation.IsValidLabelValue(name)) == 0
}

// EffectivePool is the pool whose driver the node has or will get: the one that it is labelled
// with, as moving it to another is an upgrade; else the one that its facts put it in.
func (f NodeFacts) EffectivePool() (Pool, bool) {
	if tag, found := cutLast(f.Pool, "-"); found {
		return Pool{Name: f.Pool, OSTag: tag}, true
	}
	return f.WantedPool()
}

// Managed tells whether the operator looks after the node as a GPU node. A node that was one stays
// one until the node controller has given it up, so that lost labels remove nothing.
func (f NodeFacts) Managed() bool { return f.HasGPU || f.WasGPU }

// Pools groups the managed nodes that operands may run on, sorted by name.
func Pools(nodes []NodeFacts) []Pool {
	byName := map[string]*Pool{}
	for _, node := range nodes {
		if !node.Managed() || node.Excluded {
			continue
		}
		pool, complete := node.EffectivePool()
		if !complete {
			continue
		}
		if byName[pool.Name] == nil {
			byName[pool.Name] = &pool
		}
		byName[pool.Name].Nodes++
	}
	pools := make([]Pool, 0, len(byName))
	for _, pool := range byName {
		pools = append(pools, *pool)
	}
	sort.Slice(pools, func(i, j int) bool { return pools[i].Name < pools[j].Name })
	return pools
}

func cutLast(s, sep string) (before string, found bool) {
	i := strings.LastIndex(s, sep)
	if i <= 0 {
		return "", false
	}
	return s[:i], true
}
