package labels

// Directories on the host that the operands share.
const (
	// DriverRoot is where the driver container mounts its root file system.
	DriverRoot = "/run/nvidia/driver"
	// DriverSources is the directory in DriverRoot with the driver's sources and the kernel headers, from
	// which the driver's sidecars build their modules.
	DriverSources = DriverRoot + "/usr/src"
	// ValidationsDir contains the markers. Written by the validation containers (gpu-node validate) and by
	// the driver's start-up probe.
	ValidationsDir = "/run/nvidia/validations"
	// ToolkitInstallDir is the default of spec.toolkit.installDir.
	ToolkitInstallDir = "/usr/local/nvidia"
	// HostRootMount is where pods mount the host's root file system, and DriverRootMount where they mount
	// DriverRoot. NVIDIA's operands find the driver there by the assignments in the driver's marker.
	HostRootMount   = "/host"
	DriverRootMount = "/driver-root"
	// CABundleDir is where every container finds the certificates of spec.global.caBundle, in CABundleFile.
	CABundleDir  = "/etc/gpu-operator/ca"
	CABundleFile = "ca-bundle.crt"
	// TerminationLog is the default of a container's terminationMessagePath.
	TerminationLog = "/dev/termination-log"
	// BootIDFile changes with every boot of the node.
	BootIDFile = "/proc/sys/kernel/random/boot_id"
	// ProcStat has the time at which the node was booted, in its line btime (seconds since 1970).
	ProcStat = "/proc/stat"
	// HelperDir is the emptyDir to which gpu-node copies itself, for containers whose images do not have it.
	HelperDir = "/gpu-operator"
	// HelperVolume is the name of its volume.
	HelperVolume = "gpu-operator"
	// ProbeCommand is the command of gpu-node that is the start-up probe of the driver container.
	ProbeCommand = "probe"
	// RestartedCommand is the command of gpu-node that is the start-up probe of the toolkit's container.
	RestartedCommand = "restarted"
	// ConfigureCommand is the command of gpu-node in ConfigManagerContainer and ConfigManagerInitContainer.
	ConfigureCommand = "configure"
	// HelperBinary is the on-node program in the operator's image.
	HelperBinary = "/usr/bin/gpu-node"
	// RecheckCommand is the command of gpu-node in the validator's main container. ExitGPUsLost plus the number of GPUs
	// that are lost while others are left, at most MaxExitGPUsLost, is its exit code; 1 if no GPU can be used.
	RecheckCommand = "recheck"
	// HoldCommand is the command of gpu-node that only waits, in a pod whose init containers do the work.
	HoldCommand     = "hold"
	ExitGPUsLost    = 64
	MaxExitGPUsLost = 32
	// CUDABinary runs a kernel on each GPU; next to HelperBinary. It is linked to the C library, which
	// libcuda needs.
	CUDABinary = "/usr/bin/gpu-node-cuda"
	// DevCharMount is where pods mount /dev/char of the host.
	DevCharMount = "/host-dev-char"
	// DevMount is where pods mount /dev of the host, and RecheckState the file in which the validator keeps what the node
	// had when it was validated.
	DevMount     = "/host-dev"
	RecheckState = "/state/presence.json"
	// FeaturesDir is where GPU Feature Discovery writes its labels in the file FeaturesFile, and
	// where Node Feature Discovery and gpu-node discover read them.
	FeaturesDir = "/etc/kubernetes/node-feature-discovery/features.d"
	// FeaturesFile is the name of GPU Feature Discovery's file.
	FeaturesFile = "gfd"
	// KubeletRootDir is the default of spec.hostPaths.kubeletRootDir.
	KubeletRootDir = "/var/lib/kubelet"
	// MOFEDReady is the file that the driver pod of NVIDIA's network operator writes once the Mellanox
	// driver is loaded.
	MOFEDReady = "/run/mellanox/drivers/.driver-ready"
)

// Marker is a file in ValidationsDir that a container writes once a part of the stack is validated on this
// node. "gpu-node wait --for=NAME" waits for NAME+MarkerSuffix.
type Marker string

// The markers, and what each validates. The provers of driver, toolkit, cuda and plugin are in the graph of the
// operands. The others are written by the driver's validation container and by the toolkit's start-up probe.
const (
	// MarkerDriver: nvidia-smi works in the driver's root. A file of shell assignments, which
	// the entrypoints of NVIDIA's operand images read.
	MarkerDriver Marker = "driver"
	// MarkerRuntime: the container runtime has restarted with the toolkit's configuration, for the current driver.
	MarkerRuntime Marker = "runtime"
	// MarkerToolkit: a container gets the GPU through the runtime.
	MarkerToolkit Marker = "toolkit"
	// MarkerCUDA: a kernel runs on the GPUs, with the libraries that a container gets.
	MarkerCUDA Marker = "cuda"
	// MarkerPlugin: the node advertises GPUs that can be allocated.
	MarkerPlugin Marker = "plugin"
	// MarkerMOFED: the Mellanox driver is loaded, by the host or by NVIDIA's network operator.
	MarkerMOFED Marker = "mofed"
	// MarkerNvidiaFS: the kernel module nvidia_fs of GPUDirect Storage is loaded.
	MarkerNvidiaFS Marker = "nvidia-fs"
	// MarkerGDRCopy: the kernel module gdrdrv of GDRCopy is loaded.
	MarkerGDRCopy Marker = "gdrcopy"
	// MarkerPeerMem: the kernel module nvidia_peermem of GPUDirect RDMA is loaded.
	MarkerPeerMem Marker = "nvidia-peermem"
)

const (
	// MarkerSuffix follows the name of a marker in its file name.
	MarkerSuffix = "-ready"
	// ReasonSuffix follows the name of a marker in the file, next to the markers, in which "gpu-node
	// validate" reports in one sentence why it failed. Removed on success.
	ReasonSuffix = ".reason"
	// ProgressSuffix follows the name of a marker in the file, next to the markers, with the time at which
	// validation began, for the next run to read if this one ends without success. Written by "gpu-node
	// validate" before it removes the marker, removed on success.
	ProgressSuffix = ".proving"
	// DriverContainerReady is the file that the driver container's start-up probe writes once
	// the modules are loaded and nvidia-smi works: lines "KEY: value".
	DriverContainerReady = ".driver-ctr-ready"
	// DriverDaemonsStatus is the file in which the driver container reports whether its daemons
	// (persistenced, fabric manager, ...) are up: "Ready" or "NotReady".
	DriverDaemonsStatus = ".driver-daemons-status"
	// DriverDaemonsReady is the content of that file once they are up.
	DriverDaemonsReady = "Ready"
	// DriverInstanceKey is the line in DriverContainerReady, and the assignment in a marker, that
	// names the driver instance.
	DriverInstanceKey = "DRIVER_INSTANCE"
	// ValidatedMessage and the driver instance, as in a marker, are the termination message of a "gpu-node
	// validate" that has succeeded. It shows the operator which driver a pod has validated. NoDriverInstance is
	// there in place of an empty one.
	ValidatedMessage = "validated for driver instance "
	NoDriverInstance = "none"
	// UnnamedInstancePrefix begins the driver instance of a driver container that does not name itself, such as that of
	// another program. When the container was ready follows.
	UnnamedInstancePrefix = "since-"
	// StartedAtKey is the assignment in a marker with the time (seconds since 1970) at which validation
	// began, earlier runs that ended without success included. Read by gpu-node export.
	StartedAtKey = "STARTED_AT"
	// RenewedKey is the assignment in a marker that is "true" where validation, or the first of several runs
	// without success, began with a marker that could be trusted: the part was validated again, as after a
	// restart of the pod, and not for the first time. Read by gpu-node export.
	RenewedKey = "RENEWED"
	// The lines in DriverContainerReady that state which modules the driver container loads besides its own:
	// "true" or "false".
	GDRCopyEnabledKey = "GDRCOPY_ENABLED"
	GDSEnabledKey     = "GDS_ENABLED"
	RDMAEnabledKey    = "GPU_DIRECT_RDMA_ENABLED"
	// RuntimeFollowsKey is the assignment in the driver's marker that is "true" where the toolkit in the same
	// pod restarts the container runtime, and then writes MarkerRuntime. Until then, the runtime may inject
	// what an earlier driver had.
	RuntimeFollowsKey = "RUNTIME_FOLLOWS"
	// DriverModuleKey is the assignment in the driver's marker with the version of the loaded kernel module nvidia; empty
	// if the module states none. It is absent where the driver has no such module, as in WSL.
	DriverModuleKey = "DRIVER_MODULE"
	// BootIDKey is the assignment in a marker that names the boot in which it was written.
	BootIDKey = "BOOT_ID"
)

// The variables of the driver container that select its kernel modules, besides those above.
const (
	KernelModuleTypeKey = "KERNEL_MODULE_TYPE"
	OpenModulesKey      = "OPEN_KERNEL_MODULES_ENABLED"
	// HostMOFEDKey is "true" where the host provides the network driver for GPUDirect RDMA.
	HostMOFEDKey = "USE_HOST_MOFED"
)

// The assignments in the driver's marker, as the entrypoints of NVIDIA's operand images read
// them. Written by gpu-node validate driver.
const (
	// IsHostDriverKey is "true" where the driver is installed on the host itself.
	IsHostDriverKey = "IS_HOST_DRIVER"
	// DriverRootKey is the driver's root on the host, DriverRootMountKey the same in a pod.
	DriverRootKey      = "NVIDIA_DRIVER_ROOT"
	DriverRootMountKey = "DRIVER_ROOT_CTR_PATH"
	// DevRootKey is the root of the /dev with the GPUs on the host, DevRootMountKey in a pod.
	DevRootKey      = "NVIDIA_DEV_ROOT"
	DevRootMountKey = "DEV_ROOT_CTR_PATH"
)

// File returns the name of the marker's file in ValidationsDir.
func (m Marker) File() string { return string(m) + MarkerSuffix }

// ReasonFile returns the name of the file in ValidationsDir that states why the marker is missing.
func (m Marker) ReasonFile() string { return string(m) + ReasonSuffix }

// ProgressFile returns the name of the file in ValidationsDir with the time at which validation began.
func (m Marker) ProgressFile() string { return string(m) + ProgressSuffix }
