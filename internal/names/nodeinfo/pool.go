package nodeinfo

import (
	"cmp"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/clusterpolicy/gpu-operator/internal/names/digest"
)

// Pool is a set of nodes that share a driver: same operating system, version and architecture, same kernel if the
// driver's image has precompiled modules, and same release of Red Hat CoreOS if its driver toolkit builds them.
type Pool struct {
	// Name of the pool, such as ubuntu24.04-amd64 or ubuntu24.04-amd64-6.8.0-51-generic; a label value.
	Name string
	// OSTag is the suffix of the driver image's tag, such as ubuntu24.04.
	OSTag string
	// Kernel of the precompiled modules in the image; empty if they are built on the node.
	Kernel string
	// CoreOS is the release of Red Hat CoreOS whose driver toolkit builds the modules; empty if none does.
	CoreOS string
	// NodePool is the node pool that specifies the driver; empty if spec.driver alone does.
	NodePool string
	// Nodes in the pool.
	Nodes int
}

// PoolCriteria selects the facts that the nodes of a pool have in common.
type PoolCriteria struct {
	// Kernel: the kernel is part of the pool, as drivers are precompiled.
	Kernel bool
	// CoreOS: the release of Red Hat CoreOS is part of the pool, as OpenShift's driver toolkit builds the drivers.
	CoreOS bool
	// NodePool is the node pool that specifies the driver of the node, empty for none.
	NodePool string
}

// majorOnly are the operating systems whose driver images are published per major version.
var majorOnly = map[string]bool{"rhel": true, "rocky": true, "ol": true}

// OSTag returns the suffix of the driver image's tag for the node, or empty if a fact is missing.
func (f Facts) OSTag() string {
	if f.OSID == "" || f.OSVersion == "" {
		return ""
	}
	version := f.OSVersion
	if majorOnly[f.OSID] {
		version, _, _ = strings.Cut(version, ".")
	}
	return f.OSID + version
}

// PoolByFacts returns the pool by the node's facts, or false if a fact is missing.
func (f Facts) PoolByFacts(criteria PoolCriteria) (Pool, bool) {
	pool, complete := f.composePool(criteria)
	// The name becomes a label value. Labels of a discovery never make it invalid, other labels may.
	return pool, complete && len(validation.IsValidLabelValue(pool.Name)) == 0
}

// composePool is PoolByFacts without validation of the name.
func (f Facts) composePool(criteria PoolCriteria) (Pool, bool) {
	pool := Pool{OSTag: f.OSTag()}
	byRelease := criteria.CoreOS && f.IsCoreOS()
	if pool.OSTag == "" || f.Architecture == "" || criteria.Kernel && f.Kernel == "" || byRelease && f.OSTree == "" {
		return Pool{}, false
	}
	pool.NodePool = criteria.NodePool
	switch {
	case criteria.Kernel:
		pool.Kernel = f.Kernel
	case byRelease:
		pool.CoreOS = f.OSTree
	}
	pool.Name = WithSuffix(pool.OSTag+"-"+f.Architecture, poolSuffix(pool.NodePool, pool.Kernel, pool.CoreOS))
	return pool, true
}

// IsCoreOS reports whether the node runs Red Hat CoreOS. Up to OpenShift 4.18 its os-release has an ID of its own. From
// 4.19 on it has the ID of Red Hat Enterprise Linux, and only the kubelet's osImage differs.
func (f Facts) IsCoreOS() bool {
	return f.OSID == "rhcos" || f.OSID == "rhel" && strings.HasPrefix(f.OSImage, "Red Hat Enterprise Linux CoreOS")
}

// poolSuffix returns what follows the system and the architecture in a pool's name: the node pool, and the release of
// the kernel or of CoreOS, of which a pool has at most one. Suffixes are unique: the name of a node pool begins with a
// letter and has no dot, and a release begins with a number and a dot.
func poolSuffix(nodePool, kernel, coreOS string) string {
	return strings.Trim(nodePool+"-"+cmp.Or(kernel, coreOS), "-")
}

// WithSuffix returns the name and the suffix joined by a hyphen, as a label value. If that is too long, it has a hash
// of the suffix.
func WithSuffix(name, end string) string {
	if end == "" {
		return name
	}
	if whole := name + "-" + end; len(whole) <= validation.LabelValueMaxLength {
		return whole
	}
	return name + "-" + digest.Of(end)
}

// PoolInUse returns the pool whose driver the node has or will get: the one that it is labelled with, as a move to
// another pool is an upgrade; else the one by its facts.
func (f Facts) PoolInUse(criteria PoolCriteria) (Pool, bool) {
	if byFacts, complete := f.composePool(criteria); complete && byFacts.Name == f.Pool {
		// A label value is valid. This is the usual case, and validation would be the most expensive part.
		return byFacts, true
	}
	if pool, found := f.poolByLabel(); found {
		return pool, true
	}
	return f.PoolByFacts(criteria)
}

// poolByLabel returns the pool in the node's labels, whatever its current facts are.
func (f Facts) poolByLabel() (Pool, bool) {
	name := f.Pool
	if end := poolSuffix(f.PoolNodePool, f.PoolKernel, f.PoolCoreOS); end != "" {
		var found bool
		if name, found = strings.CutSuffix(name, "-"+end); !found {
			name, found = strings.CutSuffix(name, "-"+digest.Of(end))
		}
		if !found {
			return Pool{}, false
		}
	}
	tag, architecture, found := cutLast(name, "-")
	// The architecture is reported by the kubelet and never changes. If another one is parsed, the label of the kernel,
	// of the release or of the node pool is missing.
	if !found || f.Architecture != "" && architecture != f.Architecture {
		return Pool{}, false
	}
	return Pool{Name: f.Pool, OSTag: tag, Kernel: f.PoolKernel, CoreOS: f.PoolCoreOS, NodePool: f.PoolNodePool}, true
}

// Pools returns the pools of the managed nodes that operands may run on, sorted by name. criteria returns those of a
// node.
func Pools(nodes []Facts, criteria func(Facts) PoolCriteria) []Pool {
	byName := map[string]*Pool{}
	for _, node := range nodes {
		if !node.TakesOperands() {
			continue
		}
		pool, complete := node.PoolInUse(criteria(node))
		if !complete {
			continue
		}
		if byName[pool.Name] == nil {
			byName[pool.Name] = &pool
		}
		if !node.StandsIn {
			byName[pool.Name].Nodes++
		}
	}
	pools := make([]Pool, 0, len(byName))
	for _, pool := range byName {
		pools = append(pools, *pool)
	}
	sort.Slice(pools, func(i, j int) bool { return pools[i].Name < pools[j].Name })
	return pools
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i <= 0 {
		return "", "", false
	}
	return s[:i], s[i+len(sep):], true
}
