package nodeinfo

import (
	"maps"
	"reflect"
)

// Facts are the facts about a node that decide what it needs. They are read from the Node alone.
type Facts struct {
	// Name of the node.
	Name string
	// StandsIn: this is no node of the cluster, but stands for GPU nodes to come; see StandIn.
	StandsIn bool
	// HasGPU: the discovery labels show an NVIDIA GPU.
	HasGPU bool
	// WasGPU: the operator has labelled the node as a GPU node before.
	WasGPU bool
	// SelectorLabelGraceOver: a discovery label that a nodeSelector requires has been missing for longer than the grace
	// period, so that the node counts as one without it. Set only by the node controller, for its own node.
	SelectorLabelGraceOver bool
	// MIGOverdue: a change of the MIG layout has taken longer than its deadline. Set only by the node controller, for its
	// own node.
	MIGOverdue bool
	// HasDiscoveryLabels: the node has any discovery label.
	HasDiscoveryLabels bool
	// ExcludedByLabel: a user keeps all operands off the node, by label.
	ExcludedByLabel bool
	// Workload in the label of the node, empty for none; see operand.Input.WorkloadOf for the effective one.
	Workload Workload
	// OSID and OSVersion are ID and VERSION_ID of /etc/os-release.
	OSID, OSVersion string
	// Architecture of the node in Go's terms, such as amd64.
	Architecture string
	// Kernel release in the discovery labels.
	Kernel string
	// OSTree is OSTREE_VERSION of /etc/os-release: the release of Red Hat CoreOS.
	OSTree string
	// OSImage is the name of the operating system that the kubelet reports.
	OSImage string
	// Runtime is the name of the container runtime, such as containerd, and RuntimeVersion its version.
	Runtime, RuntimeVersion string
	// Distribution that installed the container runtime, and the Layout that the node is labelled with.
	Distribution Distribution
	Layout       string
	// MIGCapable and MPSCapable are labels of GPU Feature Discovery: "true", "false", or empty if not set yet.
	MIGCapable, MPSCapable string
	// MIGWritten is the MIG layout that the operator has requested for the node, empty for none. The label may have
	// another one since, of a user.
	MIGWritten string
	// Product is the name of the GPU that GPU Feature Discovery reports.
	Product string
	// VGPUGuest: the node is a virtual machine whose GPUs are vGPUs.
	VGPUGuest bool
	// Pool is the driver pool that the node is labelled with, or that of its anchor if the label is missing. PoolKernel is
	// the kernel of that pool and PoolCoreOS its release of Red Hat CoreOS, each empty if the pool has any.
	Pool, PoolKernel, PoolCoreOS string
	// PoolNodePool is the node pool whose driver that pool has, empty for that of spec.driver. NodePool is
	// the node pool that the node is labelled with.
	PoolNodePool, NodePool string
	// Labels of the node, for nodeSelectors of the spec. Read-only.
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

// Managed reports whether the operator manages the node as a GPU node. It does so until the node controller releases
// the node, so that missing discovery labels remove nothing.
func (f Facts) Managed() bool { return f.HasGPU || f.WasGPU }

// TakesOperands reports whether operands may run on the node: the operator manages it, and no user keeps them off.
func (f Facts) TakesOperands() bool { return f.Managed() && !f.ExcludedByLabel }
