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
	// DriverContainerReady is the file that the driver container's start-up probe writes once
	// the modules are loaded and nvidia-smi works: lines "KEY: value".
	DriverContainerReady = ".driver-ctr-ready"
	// DriverInstanceKey is the line in DriverContainerReady, and the assignment in a marker, that
	// names the instance of the driver container.
	DriverInstanceKey = "DRIVER_INSTANCE"
	// BootIDKey is the assignment in a marker that names the boot in which it was written.
	BootIDKey = "BOOT_ID"
)

// File returns the name of the marker's file in ValidationsDir.
func (m Marker) File() string { return string(m) + MarkerSuffix }
