package nodeinfo

import (
	"cmp"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/clusterpolicy/gpu-operator/internal/digest"
)

// Pool is a set of nodes that share a driver: same operating system, version and architecture, same
// kernel where the driver's image holds modules for one kernel, and same release of Red Hat CoreOS where
// they are built with the driver toolkit of that release.
type Pool struct {
	// Name of the pool, such as ubuntu24.04-amd64 or ubuntu24.04-amd64-6.8.0-51-generic; a label value.
	Name string
	// OSTag is the end of the driver image's tag, such as ubuntu24.04.
	OSTag string
	// Kernel that the image must be for; empty where it builds its modules on the node.
	Kernel string
	// CoreOS is the release of Red Hat CoreOS whose driver toolkit builds the modules; empty where none does.
	CoreOS string
	// NodePool is the pool of spec.nodePools that says what driver it is; empty where that is spec.driver alone.
	NodePool string
	// Nodes in the pool.
	Nodes int
}

// PoolKey tells what makes a pool.
type PoolKey struct {
	// Kernel is part of it: drivers are precompiled.
	Kernel bool
	// CoreOS: on nodes with Red Hat CoreOS its release is part of it, as the driver toolkit of OpenShift
	// builds the drivers there.
	CoreOS bool
	// NodePool is the pool of spec.nodePools that says what driver the node gets, empty for none.
	NodePool string
}

// majorOnly are the operating systems whose driver images are published per major version.
var majorOnly = map[string]bool{"rhel": true, "rocky": true, "ol": true}

// OSTag is the end of the tag of a driver image for the node, or empty if a fact is missing.
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

// ExpectedPool is the pool that the node's facts put it in, or false if a fact is missing.
func (f Facts) ExpectedPool(key PoolKey) (Pool, bool) {
	pool, complete := f.factsPool(key)
	// The name becomes a label value. What is none comes from labels that nobody's discovery writes.
	return pool, complete && len(validation.IsValidLabelValue(pool.Name)) == 0
}

// factsPool is the same whatever the name.
func (f Facts) factsPool(key PoolKey) (Pool, bool) {
	pool := Pool{OSTag: f.OSTag()}
	byRelease := key.CoreOS && f.isCoreOS()
	if pool.OSTag == "" || f.Architecture == "" || key.Kernel && f.Kernel == "" || byRelease && f.OSTree == "" {
		return Pool{}, false
	}
	pool.NodePool = key.NodePool
	switch {
	case key.Kernel:
		pool.Kernel = f.Kernel
	case byRelease:
		pool.CoreOS = f.OSTree
	}
	pool.Name = WithSuffix(pool.OSTag+"-"+f.Architecture, poolSuffix(pool.NodePool, pool.Kernel, pool.CoreOS))
	return pool, true
}

// isCoreOS tells whether the node runs Red Hat CoreOS. Its os-release says so up to OpenShift 4.18. From
// 4.19 on it has the ID of Red Hat Enterprise Linux, and the name that the kubelet reports tells the two apart.
func (f Facts) isCoreOS() bool {
	return f.OSID == "rhcos" || f.OSID == "rhel" && strings.HasPrefix(f.OSImage, "Red Hat Enterprise Linux CoreOS")
}

// poolSuffix is what a pool's name has after the system and the architecture: the node pool, and the release of a
// kernel or of CoreOS, of which a pool has one at most: a precompiled driver is not built. A node pool begins with
// a letter and has no dot, and a release begins with a number and a dot, so that no two ends are the same.
func poolSuffix(nodePool, kernel, coreOS string) string {
	return strings.Trim(nodePool+"-"+cmp.Or(kernel, coreOS), "-")
}

// WithSuffix is a name with that end, joined by a hyphen, as the value of a label. Where that is too long, a hash stands
// for the end.
func WithSuffix(name, end string) string {
	if end == "" {
		return name
	}
	if whole := name + "-" + end; len(whole) <= validation.LabelValueMaxLength {
		return whole
	}
	return name + "-" + digest.Of(end)
}

// EffectivePool is the pool whose driver the node has or will get: the one that it is labelled
// with, as moving it to another is an upgrade; else the one that its facts put it in.
func (f Facts) EffectivePool(key PoolKey) (Pool, bool) {
	if expected, complete := f.factsPool(key); complete && expected.Name == f.Pool {
		// The value of a label is a valid one. Most nodes have it, and validation costs more than all else here.
		return expected, true
	}
	if pool, found := f.labelledPool(); found {
		return pool, true
	}
	return f.ExpectedPool(key)
}

// labelledPool is the pool that the node's labels name, whatever its facts are by now.
func (f Facts) labelledPool() (Pool, bool) {
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
	// The kubelet tells the architecture, and it never changes: another one shows that the label of the
	// kernel, of the release or of the node pool is gone.
	if !found || f.Architecture != "" && architecture != f.Architecture {
		return Pool{}, false
	}
	return Pool{Name: f.Pool, OSTag: tag, Kernel: f.PoolKernel, CoreOS: f.PoolCoreOS, NodePool: f.PoolNodePool}, true
}

// Pools groups the managed nodes that operands may run on, sorted by name. key tells what makes the pool of each.
func Pools(nodes []Facts, key func(Facts) PoolKey) []Pool {
	byName := map[string]*Pool{}
	for _, node := range nodes {
		if !node.Managed() || node.Excluded {
			continue
		}
		pool, complete := node.EffectivePool(key(node))
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

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i <= 0 {
		return "", "", false
	}
	return s[:i], s[i+len(sep):], true
}
