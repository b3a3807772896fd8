package nodeinfo

import (
	"maps"
	"reflect"
)

// Facts are the facts about a node that decide what it needs. They are read from the Node and
// from nothing else.
type Facts struct {
	// Name of the node.
	Name string
	// HasGPU tells that the discovery labels show a GPU of NVIDIA.
	HasGPU bool
	// WasGPU tells that the operator has marked the node as a GPU node before.
	WasGPU bool
	// SelectorLabelExpired tells that the label of discovery that a nodeSelector asks for has been away for so long that
	// the node counts as one without. Set by the node controller alone, for its own node.
	SelectorLabelExpired bool
	// Discovered tells that the node has any discovery label.
	Discovered bool
	// Excluded tells that a user keeps all operands off the node.
	Excluded bool
	// Workload is what the label of the node names, empty for none; operand.Input.WorkloadOf tells what counts.
	Workload Workload
	// OSID and OSVersion are ID and VERSION_ID of /etc/os-release.
	OSID, OSVersion string
	// Architecture of the node in Go's terms, such as amd64.
	Architecture string
	// Kernel release, by the discovery labels.
	Kernel string
	// OSTree is OSTREE_VERSION of /etc/os-release: the release of Red Hat CoreOS.
	OSTree string
	// OSImage is the name of the operating system, by the kubelet.
	OSImage string
	// Runtime is the container runtime without its version, such as containerd; RuntimeVersion the rest.
	Runtime, RuntimeVersion string
	// Distribution laid out the container runtime, and Layout is the layout that the node is labelled with.
	Distribution Distribution
	Layout       string
	// MIGCapable and MPSCapable are what GPU Feature Discovery says of the GPUs: "true", "false", or
	// empty as long as it has not looked.
	MIGCapable, MPSCapable string
	// Product is the name of the GPU, by GPU Feature Discovery.
	Product string
	// HostVGPU tells that the node lends its GPUs to virtual machines by the vGPU manager.
	HostVGPU bool
	// Pool is the pool that the node is labelled with, by its anchor where that label is lost; PoolKernel is the kernel
	// of that pool and PoolCoreOS its release of Red Hat CoreOS, each empty where the pool is for any.
	Pool, PoolKernel, PoolCoreOS string
	// PoolNodePool is the pool of spec.nodePools whose driver that pool has, empty where it is that of spec.driver;
	// NodePool is the one that the node is labelled as belonging to.
	PoolNodePool, NodePool string
	// Labels of the node, which nodeSelectors of the spec choose by. Not to be changed.
	Labels map[string]string
	// Deploy are the deploy labels of the node, by the name of the operand.
	Deploy map[string]string
}

// Equal reports whether two nodes have the same facts.
func (f Facts) Equal(other Facts) bool {
	if !maps.Equal(f.Labels, other.Labels) || !maps.Equal(f.Deploy, other.Deploy) {
		return false
	}
	f.Labels, f.Deploy, other.Labels, other.Deploy = nil, nil, nil, nil
	return reflect.DeepEqual(f, other)
}

// Managed tells whether the operator looks after the node as a GPU node. A node that was one stays
// one until the node controller has given it up, so that lost labels remove nothing.
func (f Facts) Managed() bool { return f.HasGPU || f.WasGPU }
