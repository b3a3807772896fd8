package labels

// Directories on the host that the operands share.
const (
	// DriverRoot is where the driver container binds its root file system.
	DriverRoot = "/run/nvidia/driver"
	// ValidationsDir holds the markers. Written by the provers (gpu-node validate) and by the
	// driver's start-up probe.
	ValidationsDir = "/run/nvidia/validations"
	// ToolkitInstallDir is the default of spec.toolkit.installDir.
	ToolkitInstallDir = "/usr/local/nvidia"
	// HostRootMount is where pods mount the host's root file system, and DriverRootMount where
	// they mount DriverRoot. NVIDIA's operands find the driver there, by the assignments in the
	// driver's marker.
	HostRootMount   = "/host"
	DriverRootMount = "/driver-root"
	// TerminationLog is the default of a container's terminationMessagePath.
	TerminationLog = "/dev/termination-log"
	// BootIDFile changes with every boot of the node.
	BootIDFile = "/proc/sys/kernel/random/boot_id"
	// HelperDir is where gpu-node copies itself to, in an emptyDir, for containers whose images
	// lack it.
	HelperDir = "/gpu-operator"
	// HelperBinary is the on-node program in the operator's image.
	HelperBinary = "/usr/bin/gpu-node"
)

// Marker is a file in ValidationsDir which tells that a part of the stack works on this node.
// "gpu-node wait --for=NAME" waits for NAME+MarkerSuffix.
type Marker string

// The markers, and what their presence proves. Each has one writer, the prover that the graph
// of the operands names.
const (
	// MarkerDriver: nvidia-smi works in the driver's root. A file of shell assignments, which
	// the entrypoints of NVIDIA's operand images read.
	MarkerDriver Marker = "driver"
	// MarkerToolkit: a container gets the GPU through the runtime.
	MarkerToolkit Marker = "toolkit"
	// MarkerPlugin: the node advertises GPUs that can be allocated.
	MarkerPlugin Marker = "plugin"
)

const (
	// MarkerSuffix follows the name of a marker in its file name.
	MarkerSuffix = "-ready"
	// ReasonSuffix follows the name of a marker in the file, beside the markers, in which
	// "gpu-node validate" says in one sentence why it gave up. Removed on success.
	ReasonSuffix = ".reason"
	// DriverContainerReady is the file that the driver container's start-up probe writes once
	// the modules are loaded and nvidia-smi works: lines "KEY: value".
	DriverContainerReady = ".driver-ctr-ready"
	// DriverInstanceKey is the line in DriverContainerReady, and the assignment in a marker, that
	// names the instance of the driver container.
	DriverInstanceKey = "DRIVER_INSTANCE"
	// BootIDKey is the assignment in a marker that names the boot in which it was written.
	BootIDKey = "BOOT_ID"
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

// ReasonFile returns the name of the file in ValidationsDir that says why the marker is missing.
func (m Marker) ReasonFile() string { return string(m) + ReasonSuffix }
