package labels

import "strings"

// Discovery labels, written by Node Feature Discovery or by gpu-node discover, and read by the
// operator.
const (
	// DiscoveryPrefix is the prefix of every label of Node Feature Discovery. One label with it
	// on any node shows that discovery runs in this cluster.
	DiscoveryPrefix = "feature.node.kubernetes.io/"
	// DiscoveryPCIPresent is set where the node has an NVIDIA PCI device, whatever its class.
	DiscoveryPCIPresent = DiscoveryPrefix + "pci-10de.present"
	// DiscoveryPCI3D is set where the node has an NVIDIA device of class 0302, 3D controller.
	DiscoveryPCI3D = DiscoveryPrefix + "pci-0302_10de.present"
	// DiscoveryPCIVGA is set where the node has an NVIDIA device of class 0300, VGA controller.
	DiscoveryPCIVGA = DiscoveryPrefix + "pci-0300_10de.present"
	// DiscoveryPCIMellanox is set where the node has a Mellanox network adapter. Read where a driver
	// waits for the Mellanox driver.
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
	// DiscoveredLabels is an annotation of gpu-node discover: the keys of the labels that it has written,
	// sorted, separated by commas. It removes only labels that are listed there.
	DiscoveredLabels = "nvidia.com/gpu-operator.discovered-labels"
)

// Node labels and annotations of the GPU stack.
const (
	// GPUPresent is written by the node controller: "true" on a node with GPUs, "false" once
	// they are gone. Read by schedulers, dashboards and NVSentinel.
	GPUPresent = "nvidia.com/gpu.present"
	// DeployPrefix precedes the operand's name in the label that selects the nodes of its
	// DaemonSet. The node controller writes "true" where the key is absent or empty. Any other
	// value is left alone: false (a user, NVSentinel), paused-for-driver-upgrade and
	// pre-installed (k8s-driver-manager), paused-for-mig-change (mig-manager).
	DeployPrefix = "nvidia.com/gpu.deploy."
	// DeployOperands is set to "false" by a user to keep every operand off the node.
	DeployOperands = DeployPrefix + "operands"
	// GPUWorkload is set by a user to the workload that the node's GPUs are for: container,
	// vm-passthrough or vm-vgpu. Read only where spec.sandboxWorkloads.enabled is set.
	GPUWorkload = "nvidia.com/gpu.workload.config"
	// DeployClient is written together with the operands' labels. Third-party GPU clients select nodes by
	// it, and k8s-driver-manager pauses it.
	DeployClient = DeployPrefix + "client"
	// DeployDevicePlugin is the deploy label of the device plugin.
	DeployDevicePlugin = DeployPrefix + "device-plugin"
	// DeployHealthAgent is the deploy label of the health agent, the only one of which NVIDIA's operator knows nothing.
	DeployHealthAgent = DeployPrefix + "health-agent"
	// DeployPreInstalled is the value that k8s-driver-manager gives to the driver's deploy label
	// when it finds a driver on the host.
	DeployPreInstalled = "pre-installed"
	// DeployPausedForMIG is the value that mig-manager gives to deploy labels while it changes the MIG layout.
	DeployPausedForMIG = DeployPausedPrefix + "mig-change"
	// DeployPaused starts the value of a deploy label that any program has paused for a time.
	DeployPaused = "paused-"
	// DeployPausedPrefix starts the values that k8s-driver-manager and mig-manager give to deploy labels while they work.
	DeployPausedPrefix = DeployPaused + "for-"
	// Pool is written by the node controller: the driver pool of the node, such as
	// ubuntu24.04-amd64. The driver's DaemonSets select on it, never on discovery labels, so
	// that a lost discovery label removes no driver pod.
	Pool = "nvidia.com/gpu-operator.pool"
	// PoolKernel is written together with Pool: the kernel of a pool of nodes with a precompiled driver. Read
	// by the operator alone, which needs the kernel of the installed driver after the node has booted another.
	PoolKernel = "nvidia.com/gpu-operator.pool-kernel"
	// PoolCoreOS is written together with Pool: the Red Hat CoreOS release of a pool whose driver is built
	// with the driver toolkit of OpenShift.
	PoolCoreOS = "nvidia.com/gpu-operator.pool-coreos"
	// PoolNodePool is written together with Pool: the entry of spec.nodePools whose driver settings the
	// driver pool uses.
	PoolNodePool = "nvidia.com/gpu-operator.pool-node-pool"
	// DriverOwner is written by the node controller: the NVIDIADriver object whose driver the node gets. Read by users.
	DriverOwner = "nvidia.com/gpu-operator.driver.owner"
	// NodePool is written by the node controller: the entry of spec.nodePools that the node belongs to. Read
	// by users, and by the operator, which keeps a node in its node pool while a discovery label is missing. It is
	// also on the DaemonSets of a node pool and on their pods, to keep their selectors disjoint.
	NodePool = "nvidia.com/gpu-operator.node-pool"
	// NodePoolPrefix precedes the name of an operand in the label that the node controller writes where the
	// node pool overrides that operand's part of the spec. Its value is the node pool. The DaemonSets of the
	// node pool select on it, and the operand's common DaemonSet excludes every node that has it.
	NodePoolPrefix = NodePool + "."
	// Layout is written by the node controller: the layout of the node's container runtime, such as
	// containerd (upstream paths), crio or k3s. The toolkit's DaemonSets select on it. It follows what the
	// kubelet reports: replacing the toolkit disturbs no GPU work.
	Layout = "nvidia.com/gpu-operator.runtime"
	// OwnPrefix starts the labels and annotations of this operator, except anchors.
	OwnPrefix = "nvidia.com/gpu-operator."
	// AnchorPrefix precedes the name of an operand in the label that keeps the operand's pod on a node which
	// has lost another label that the pod's DaemonSet selects by. The node controller writes and removes it
	// together with those. Its value is the node's variant for that operand: the driver pool, or the layout
	// of the container runtime. It has a prefix of its own, so that it survives the removal of all
	// nvidia.com/ labels.
	AnchorPrefix = "clusterpolicy.github.io/"
	// DriverAnchor is the anchor of the driver. Its value is that of Pool.
	DriverAnchor = AnchorPrefix + "driver"
	// DiscoveryLostSince is an annotation of the node controller: since when (RFC 3339) a node with
	// GPUPresent has had no GPU in its discovery labels, and none to allocate. On a node with
	// GPUPresent=false it shows that the node controller wrote that value.
	DiscoveryLostSince = "nvidia.com/gpu-operator.discovery-lost-since"
	// DiscoveryMissingSince is an annotation of the node controller: since when (RFC 3339) discovery labels
	// that a node with GPUPresent had are missing. The grace period of the missing labels begins with it.
	DiscoveryMissingSince = "nvidia.com/gpu-operator.discovery-missing-since"
	// UpgradeEnabled is an annotation: "true" where the operator installs the driver, and so moves the pods with GPUs
	// away before it replaces the driver. Written by the node controller, and by NVIDIA's operator. k8s-driver-manager
	// evicts no pods there.
	UpgradeEnabled = "nvidia.com/gpu-driver-upgrade-enabled"
	// UpgradeState is the state of the node's driver upgrade, see package upgrade. Written by the upgrade controller, and
	// by NVIDIA's operator. Read by dashboards and scripts.
	UpgradeState = "nvidia.com/gpu-driver-upgrade-state"
	// UpgradeStateRequired and UpgradeStateDone are those of its values, besides none, with which the driver is in use.
	UpgradeStateRequired = "upgrade-required"
	UpgradeStateDone     = "upgrade-done"
	// UpgradeRecord is an annotation of the upgrade controller: what it has to know of the node's upgrade, in JSON.
	UpgradeRecord = "nvidia.com/gpu-operator.driver-upgrade"
	// UpgradeSkip is set by users to "true" to exclude the node from upgrades.
	UpgradeSkip = "nvidia.com/gpu-driver-upgrade.skip"
	// UpgradeRequested is an annotation that users set to "true" to upgrade the node now. The upgrade controller removes
	// it when the upgrade begins.
	UpgradeRequested = "nvidia.com/gpu-driver-upgrade-requested"
	// UpgradeInitialCordon is an annotation, "true" while a node is upgraded that was cordoned before. Written by the
	// upgrade controller, and by NVIDIA's operator.
	UpgradeInitialCordon = "nvidia.com/gpu-driver-upgrade.node-initial-state.unschedulable"
	// DrainSkip is a label of pods that no drain evicts.
	DrainSkip = "nvidia.com/gpu-driver-upgrade-drain.skip"
	// UpgradeSlots is the ConfigMap in the operator's namespace with the nodes that may be upgraded.
	UpgradeSlots = "gpu-operator-driver-upgrades"
	// Cleanup is written by the node controller while the stack is removed: "true" once the stack has no pod on the node
	// any more. The DaemonSet that cleans up the host selects on it.
	Cleanup = "nvidia.com/gpu-operator.cleanup"
	// StartupTaints is an annotation of the node controller: the start-up taints that it has put back on the
	// node, as KEY:EFFECT, sorted, separated by commas. Without a policy it removes only those.
	StartupTaints = "nvidia.com/gpu-operator.startup-taints"
	// ReadyBoot is an annotation of the node controller: the boot ID of the node when its GPUs could last be used. It is
	// written while the policy has start-up taints, which come back with another boot ID.
	ReadyBoot = "nvidia.com/gpu-operator.ready-boot"
	// MIGCapable and MPSCapable are written by GPU Feature Discovery: "true" where the GPUs support MIG, and
	// where the device plugin's configuration shares them by MPS.
	MIGCapable = "nvidia.com/mig.capable"
	MPSCapable = "nvidia.com/mps.capable"
	// GPUProduct is the name of the GPUs, written by GPU Feature Discovery. Where each GPU is one kind of MIG device, it
	// is that of the devices and contains ProductMIG.
	GPUProduct = "nvidia.com/gpu.product"
	// GPUClique is the NVLink domain of the node's GPUs, written by GPU Feature Discovery where the driver reports one.
	GPUClique  = "nvidia.com/gpu.clique"
	ProductMIG = "-MIG-"
	// ProductShared ends it where several pods share a GPU under its usual resource.
	ProductShared = "-SHARED"
	// GPUCount is the number of GPUs that the driver sees, written by GPU Feature Discovery; of several models, that of
	// one of them. GPUSharing is how they are shared: none, time-slicing or mps.
	GPUCount   = "nvidia.com/gpu.count"
	GPUSharing = "nvidia.com/gpu.sharing-strategy"
	// GPUReplicas is how many pods can have a whole GPU: 0 for GPUs that are partitioned. Also written by GPU Feature
	// Discovery, as is the number of MIG devices of each resource, in the label RESOURCE with this suffix.
	GPUReplicas = "nvidia.com/gpu.replicas"
	CountSuffix = ".count"
	// DriverVersion is the version of the driver, written by GPU Feature Discovery, of which older
	// releases write only the parts.
	DriverVersion  = "nvidia.com/cuda.driver-version.full"
	DriverMajor    = "nvidia.com/cuda.driver.major"
	DriverMinor    = "nvidia.com/cuda.driver.minor"
	DriverRevision = "nvidia.com/cuda.driver.rev"
	// ReplicasSuffix ends the label with how many pods share a MIG device.
	ReplicasSuffix = ".replicas"
	// ReportRecord is an annotation of the node controller: what the conditions of the node say, in JSON, see package
	// assess. Also read by kubectl gpu.
	ReportRecord = "nvidia.com/gpu-operator.report"
	// GPUsOnBus is an annotation of gpu-node discover: how many GPUs on the PCI bus are bound to the driver. It stays
	// while no GPU is, as during a driver upgrade.
	GPUsOnBus = "nvidia.com/gpu-operator.gpus-on-bus"
	// GPUHealth is an annotation of the node's health agent, gpu-node health: which GPUs are unhealthy and why, in JSON,
	// see package gpuhealth. Read by the operator.
	GPUHealth = "nvidia.com/gpu-operator.gpu-health"
	// HealthRecord is an annotation of the health action controller: what it has done with a node because of an unhealthy
	// GPU, in JSON, see package healthaction.
	HealthRecord = "nvidia.com/gpu-operator.health-record"
	// HealthConsent is an annotation of users: HealthForbid, or HealthApprove and the ID of a fault. The health action
	// controller removes an approval when the fault has ended.
	HealthConsent = "nvidia.com/gpu-operator.health-action"
	HealthForbid  = "forbid"
	HealthApprove = "approve:"
	// NVSentinelState is a label of NVSentinel on nodes that it works on, up to NVSentinelDone.
	NVSentinelState = "dgxc.nvidia.com/nvsentinel-state"
	NVSentinelDone  = "remediation-succeeded"
	// MIGStrategy is how MIG devices are advertised: single or mixed, written by GPU Feature Discovery.
	MIGStrategy = "nvidia.com/mig.strategy"
	// VGPUHostDriver is the version of the vGPU manager on the host of a virtual machine whose GPUs are vGPUs, written by
	// GPU Feature Discovery on the guest.
	VGPUHostDriver = "nvidia.com/vgpu.host-driver-version"
	// MIGConfig is the name of the MIG layout requested for the node. Written by users, and by the operator
	// where it is absent; read by mig-manager.
	MIGConfig = "nvidia.com/mig.config"
	// MIGConfigState is the outcome of that request, one of the MIGState constants. Written by mig-manager.
	MIGConfigState    = "nvidia.com/mig.config.state"
	MIGStatePending   = "pending"
	MIGStateRebooting = "rebooting"
	MIGStateSuccess   = "success"
	MIGStateFailed    = "failed"
	// StateSuffix ends the label with the outcome of what a label requests, as MIGConfigState. VGPUConfig and CCMode are
	// requests of users to operands for virtual machines.
	StateSuffix = ".state"
	VGPUConfig  = "nvidia.com/vgpu.config"
	CCMode      = "nvidia.com/cc.mode"
	// MIGConfigWritten is an annotation: the value of MIGConfig that the operator has written. While they are equal,
	// the label is the operator's; otherwise a user has set it.
	MIGConfigWritten = "nvidia.com/gpu-operator.mig-config"
	// MIGDrain is an annotation of the upgrade controller: what it has to know of a node that it drains for a MIG layout,
	// in JSON.
	MIGDrain = "nvidia.com/gpu-operator.mig-drain"
	// MIGLayoutsKey is the key of the ConfigMap with the MIG layouts, in the format of mig-parted.
	MIGLayoutsKey = "config.yaml"
	// GPUClientsKey is the key of the ConfigMap with the services of hosts that use GPUs.
	GPUClientsKey = "clients.yaml"
	// ExporterMetricsKey is the key of the ConfigMap with the metrics of the DCGM exporter.
	ExporterMetricsKey = "dcgm-metrics.csv"
	// LicenceTokenKey is the key of the client token in the object with the licence of a vGPU driver.
	LicenceTokenKey = "client_configuration_token.tok"
	// LicenceVolume has the licence, and LicenceTokenVolume the token alone: it is mounted as a directory, in which the
	// kubelet replaces the file while the pod runs.
	LicenceVolume      = "licensing-config"
	LicenceTokenVolume = "licensing-token"
	// MIGAllDisabled is the value of MIGConfig that leaves every GPU whole.
	MIGAllDisabled = "all-disabled"
	// True is the value of a label that is set.
	True = "true"
	// False is the value of a label that is turned off.
	False = "false"
)

// Node conditions and resources.
const (
	// ConditionGPUReady is the type of the condition that the node controller writes: whether the node's
	// GPUs can be used. If not, its reason and message name the stage, the operand and the cause.
	ConditionGPUReady = "nvidia.com/GPUReady"
	// ConditionGPUHealthy is the type of the condition that the node controller writes on nodes with a health agent:
	// whether no GPU needs a reset, a reboot or a person. It does not look like those that autoscalers react to.
	ConditionGPUHealthy = "nvidia.com/GPUHealthy"
	// VendorPrefix starts the extended resources of GPUs, and NVIDIA's labels of nodes.
	VendorPrefix = "nvidia.com/"
	// ResourceGPU is the extended resource of whole GPUs, advertised by the device plugin.
	ResourceGPU = "nvidia.com/gpu"
	// SharedResourceSuffix ends the names of resources that are renamed where they are shared.
	SharedResourceSuffix = ".shared"
	// ResourceMIGPrefix starts the extended resources of MIG devices (strategy mixed).
	ResourceMIGPrefix = "nvidia.com/mig-"
	// TaintNotReady is the start-up taint that the operator may always remove and put back. Others have to
	// be named in config/admission/operator.yaml.
	TaintNotReady = "nvidia.com/gpu-operator.not-ready"
	// TaintUnhealthy is the taint of a node with an unhealthy GPU, where spec.health.actions requires it.
	TaintUnhealthy = "nvidia.com/gpu-operator.unhealthy"
	// TaintToBeDeleted is set by the cluster autoscaler on a node that it deletes, TaintDisrupted by Karpenter.
	TaintToBeDeleted = "ToBeDeletedByClusterAutoscaler"
	TaintDisrupted   = "karpenter.sh/disrupted"
	// TaintGPU is the taint that every operand tolerates by default.
	TaintGPU = "nvidia.com/gpu"
)

// IsOwn reports whether only this operator writes and reads a label or an annotation with this key. DriverOwner has the
// operator's prefix too, but is NVIDIA's.
func IsOwn(key string) bool {
	return key != DriverOwner && strings.HasPrefix(key, OwnPrefix) || strings.HasPrefix(key, AnchorPrefix)
}

// Conditions returns the types of the conditions that the node controller writes.
func Conditions() []string { return []string{ConditionGPUReady, ConditionGPUHealthy} }

// IsGPUResource reports whether an extended resource is a GPU that a pod can request: a whole one, a shared
// one or a MIG device. Shared by the operator and the on-node check, so that they agree.
func IsGPUResource(name string) bool {
	return name == ResourceGPU || strings.HasPrefix(name, ResourceGPU+".") || strings.HasPrefix(name, ResourceMIGPrefix)
}

// The driver toolkit of OpenShift.
const (
	// DriverToolkitNamespace and DriverToolkitName are those of the ImageStream with the images that drivers
	// are built in, one tag for each release of Red Hat CoreOS. DriverToolkitStream is its name in messages.
	DriverToolkitNamespace = "openshift"
	DriverToolkitName      = "driver-toolkit"
	DriverToolkitStream    = DriverToolkitNamespace + "/" + DriverToolkitName
)
