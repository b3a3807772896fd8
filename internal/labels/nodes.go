package labels

import "strings"

// Discovery labels, written by Node Feature Discovery or by gpu-node discover, and read by the
// operator.
const (
	// DiscoveryPrefix is the prefix of every label of Node Feature Discovery. One label with it
	// on any node shows that discovery runs in this cluster.
	DiscoveryPrefix = "feature.node.kubernetes.io/"
	// DiscoveryPCIPresent tells that the node has a PCI device of NVIDIA, whatever its class.
	DiscoveryPCIPresent = DiscoveryPrefix + "pci-10de.present"
	// DiscoveryPCI3D tells that the node has an NVIDIA device of class 0302, 3D controller.
	DiscoveryPCI3D = DiscoveryPrefix + "pci-0302_10de.present"
	// DiscoveryPCIVGA tells that the node has an NVIDIA device of class 0300, VGA controller.
	DiscoveryPCIVGA = DiscoveryPrefix + "pci-0300_10de.present"
	// DiscoveryPCIMellanox tells that the node has a network adapter of Mellanox. Read where a
	// driver waits for the Mellanox driver.
	DiscoveryPCIMellanox = DiscoveryPrefix + "pci-15b3.present"
	// DiscoveryKernel is the full kernel release, as uname -r prints it.
	DiscoveryKernel = DiscoveryPrefix + "kernel-version.full"
	// DiscoveryOSID is ID of /etc/os-release, for example ubuntu.
	DiscoveryOSID = DiscoveryPrefix + "system-os_release.ID"
	// DiscoveryOSVersion is VERSION_ID of /etc/os-release, for example 24.04.
	DiscoveryOSVersion = DiscoveryPrefix + "system-os_release.VERSION_ID"
	// DiscoveryOSVersionMajor and DiscoveryOSVersionMinor are its first two numbers.
	DiscoveryOSVersionMajor = DiscoveryOSVersion + ".major"
	DiscoveryOSVersionMinor = DiscoveryOSVersion + ".minor"
	// DiscoveryOSTree is OSTREE_VERSION of /etc/os-release: the release of Red Hat CoreOS, which
	// selects the image of the driver toolkit.
	DiscoveryOSTree = DiscoveryPrefix + "system-os_release.OSTREE_VERSION"
	// NFDPrefix starts the annotations by which Node Feature Discovery marks a node that it
	// labels.
	NFDPrefix = "nfd.node.kubernetes.io/"
	// Discovered is an annotation of gpu-node discover: the keys of the labels that it has written,
	// sorted, separated by commas. It removes no label that is not named there.
	Discovered = "nvidia.com/gpu-operator.discovered-labels"
)

// Node labels and annotations of the GPU stack.
const (
	// GPUPresent is written by the node controller: "true" on a node with GPUs, "false" once
	// they are gone. Read by schedulers, dashboards and NVSentinel.
	GPUPresent = "nvidia.com/gpu.present"
	// DeployPrefix precedes the operand's name in the label that selects the nodes of its
	// DaemonSet. The node controller writes "true" where the key is absent or empty. Any other
	// value belongs to its writer: false (a user, NVSentinel), paused-for-driver-upgrade and
	// pre-installed (k8s-driver-manager), paused-for-mig-change (mig-manager).
	DeployPrefix = "nvidia.com/gpu.deploy."
	// DeployOperands is set to "false" by a user to keep every operand off the node.
	DeployOperands = DeployPrefix + "operands"
	// GPUWorkload is set by a user to what the GPUs of the node are for: container, vm-passthrough or
	// vm-vgpu. It counts where spec.sandboxWorkloads.enabled.
	GPUWorkload = "nvidia.com/gpu.workload.config"
	// DeployClient is set beside the operands' labels: the public hook by which third-party GPU
	// clients select nodes, and which k8s-driver-manager pauses.
	DeployClient = DeployPrefix + "client"
	// DeployPreInstalled is the value that k8s-driver-manager gives to the driver's deploy label
	// when it finds a driver on the host.
	DeployPreInstalled = "pre-installed"
	// Pool is written by the node controller: the driver pool of the node, such as
	// ubuntu24.04-amd64. The driver's DaemonSets select on it, never on discovery labels, so
	// that a lost discovery label removes no driver pod.
	Pool = "nvidia.com/gpu-operator.pool"
	// PoolKernel is written beside Pool, and by the same writer: the kernel of a pool of nodes with a
	// precompiled driver. Read by the operator alone, which so knows the kernel of the driver of a node
	// that runs another one by now.
	PoolKernel = "nvidia.com/gpu-operator.pool-kernel"
	// PoolCoreOS is the same for the release of Red Hat CoreOS, of a pool whose driver is built with the
	// driver toolkit of OpenShift.
	PoolCoreOS = "nvidia.com/gpu-operator.pool-coreos"
	// PoolNodePool is the same for the pool of spec.nodePools whose driver a driver pool has.
	PoolNodePool = "nvidia.com/gpu-operator.pool-node-pool"
	// NodePool is written by the node controller: the pool of spec.nodePools that the node belongs to. Read
	// by users, and by the operator, which so keeps a node in its pool while a label of discovery is away. It
	// is also on the DaemonSets of a pool, and on their pods, whose selectors it sets apart.
	NodePool = "nvidia.com/gpu-operator.node-pool"
	// NodePoolPrefix precedes the name of an operand in the label that the node controller writes where the
	// node's pool says something else of that operand than the rest of the spec. Its value is the pool. The
	// DaemonSets of the pool select on it, and the common one of that operand leaves out every node with it.
	NodePoolPrefix = NodePool + "."
	// Runtime is written by the node controller: where the container runtime of the node has its files,
	// such as containerd (its own paths), crio or k3s. The toolkit's DaemonSets select on it. It follows
	// what the kubelet says: the toolkit does no GPU work that its replacement could disturb.
	Runtime = "nvidia.com/gpu-operator.runtime"
	// AnchorPrefix precedes the name of an operand in the label that keeps the operand's pod on a node which has lost
	// another label that the pod's DaemonSet selects by. The node controller writes it beside those, and takes it off
	// with them. Its value is the variant of the node (operand.Variant): the driver pool, or the layout of the container
	// runtime. It has another prefix than those, so that who removes all labels of nvidia.com/ leaves it.
	AnchorPrefix = "clusterpolicy.github.io/"
	// DriverAnchor is the anchor of the driver, which has the value of Pool.
	DriverAnchor = AnchorPrefix + "driver"
	// DiscoveryLostSince is an annotation of the node controller: since when (RFC 3339) a node
	// with GPUPresent has had no GPU in its discovery labels, and none to allocate. On a node with GPUPresent=false it tells
	// that the node controller wrote that.
	DiscoveryLostSince = "nvidia.com/gpu-operator.discovery-lost-since"
	// DiscoveryMissingSince is an annotation of the node controller: since when (RFC 3339) a node with
	// GPUPresent has lacked discovery labels that it had. It decides nothing and is told to users.
	DiscoveryMissingSince = "nvidia.com/gpu-operator.discovery-missing-since"
	// StartupTaints is an annotation of the node controller: the start-up taints that it has put back on the node,
	// as KEY:EFFECT, sorted, separated by commas. It takes no other taint off without the policy.
	StartupTaints = "nvidia.com/gpu-operator.startup-taints"
	// MIGCapable and MPSCapable are written by GPU Feature Discovery: "true" where the GPUs can be cut
	// into MIG devices, and where the device plugin's configuration shares them by MPS.
	MIGCapable = "nvidia.com/mig.capable"
	MPSCapable = "nvidia.com/mps.capable"
	// GPUProduct is the name of the GPUs, written by GPU Feature Discovery.
	GPUProduct = "nvidia.com/gpu.product"
	// VGPUHostDriver is the version of the vGPU manager of a host that lends its GPUs to virtual
	// machines, written by GPU Feature Discovery.
	VGPUHostDriver = "nvidia.com/vgpu.host-driver-version"
	// MIGConfig is the name of the MIG layout that the node is to have. Written by users, and by the
	// operator where there is none; read by mig-manager.
	MIGConfig = "nvidia.com/mig.config"
	// MIGAllDisabled is the value of MIGConfig that leaves every GPU whole.
	MIGAllDisabled = "all-disabled"
	// True is the value of a label that is set.
	True = "true"
	// False is the value of a label that is set to no.
	False = "false"
)

// Node conditions and resources.
const (
	// ConditionGPUReady is the type of the condition that the node controller writes: whether
	// the node's GPUs can be used; if not, its reason and message name the stage, the operand
	// and the cause.
	ConditionGPUReady = "nvidia.com/GPUReady"
	// ResourceGPU is the extended resource of whole GPUs, advertised by the device plugin.
	ResourceGPU = "nvidia.com/gpu"
	// ResourceMIGPrefix starts the extended resources of MIG devices (strategy mixed).
	ResourceMIGPrefix = "nvidia.com/mig-"
	// TaintNotReady is the start-up taint that the operator may always take off and put back. Others have to be
	// named in config/admission/operator.yaml.
	TaintNotReady = "nvidia.com/gpu-operator.not-ready"
	// TaintGPU is the taint that every operand tolerates by default.
	TaintGPU = "nvidia.com/gpu"
)

// IsGPUResource tells whether an extended resource is a GPU that a pod can ask for: a whole one, a
// shared one or a MIG device. The operator and the on-node check agree by it.
func IsGPUResource(name string) bool {
	return name == ResourceGPU || strings.HasPrefix(name, ResourceGPU+".") || strings.HasPrefix(name, ResourceMIGPrefix)
}

// What OpenShift has for drivers.
const (
	// DriverToolkitNamespace and DriverToolkitName are those of the ImageStream in which OpenShift has the
	// images that drivers are built with, one tag for each release of Red Hat CoreOS. DriverToolkitStream
	// names it to users.
	DriverToolkitNamespace = "openshift"
	DriverToolkitName      = "driver-toolkit"
	DriverToolkitStream    = DriverToolkitNamespace + "/" + DriverToolkitName
)
