package simulator

import corev1 "k8s.io/api/core/v1"

// What the simulator assumes about the GPU stack. It is repeated here instead of imported from the operator's
// packages, so that a mistake there does not hide itself.
const (
	appLabel = "app"
	// componentLabel has the value driverComponent on the pods of all drivers.
	componentLabel  = "app.kubernetes.io/component"
	driverComponent = "nvidia-driver"
	appDriver       = "nvidia-driver-daemonset"
	appToolkit      = "nvidia-container-toolkit-daemonset"
	appPlugin       = "nvidia-device-plugin-daemonset"
	appValidator    = "nvidia-operator-validator"
	appFeatures     = "gpu-feature-discovery"
	appMIG          = "nvidia-mig-manager"
	appExporter     = "nvidia-dcgm-exporter"
	appMPS          = "nvidia-device-plugin-mps-control-daemon"
	appHealth       = "nvidia-gpu-health"

	// configManager is NVIDIA's program that chooses the configuration of the device plugin on each node, and
	// configureCommand the command of gpu-node that does so.
	configManager    = "config-manager"
	configureCommand = "configure"

	// deployPrefix precedes the operand's name in the node selector of its pods, except for those of the driver and the
	// toolkit, whose DaemonSets select nodes by affinity, which their pods do not have.
	deployPrefix   = "nvidia.com/gpu.deploy."
	operandDriver  = "driver"
	operandToolkit = "container-toolkit"

	// resourceGPU is the resource that the device plugin advertises.
	resourceGPU corev1.ResourceName = "nvidia.com/gpu"
	// resourceMIGPrefix starts those of MIG devices.
	resourceMIGPrefix = "nvidia.com/mig-"

	// runtimePrefix is the prefix of the RuntimeClasses whose handler the toolkit installs.
	runtimePrefix = "nvidia"

	// validatedMessage and the UID of the driver's pod are the termination message of a validation that succeeds.
	validatedMessage = "validated for driver instance "
	// noDriverPod is there in place of the UID for a driver on the host.
	noDriverPod = "none"

	markerDriver  = "driver"
	markerToolkit = "toolkit"
	markerPlugin  = "plugin"
)

// deployPaused is the value that k8s-driver-manager gives to deploy labels that are true, while it replaces the
// driver.
const (
	deployTrue   = "true"
	deployPaused = "paused-for-driver-upgrade"
)

// Contract of the MIG manager with the operator: the labels of the Node that request a layout and report its outcome.
const (
	migLabel      = "nvidia.com/mig.config"
	migStateLabel = "nvidia.com/mig.config.state"
	migSuccess    = "success"
	migFailed     = "failed"
	migRebooting  = "rebooting"

	deployPausedForMIG = "paused-for-mig-change"
)

// How MIG devices are advertised, and how GPUs are shared.
const (
	strategyNone   = "none"
	strategySingle = "single"
	strategyMixed  = "mixed"

	sharingNone        = "none"
	sharingTimeSlicing = "time-slicing"
	sharingMPS         = "mps"
)

// Contract of k8s-driver-manager with the operator.
const (
	// digestVariable of the driver container changes with what it would install.
	digestVariable = "DRIVER_CONFIG_DIGEST"
	// upgradeEnabled is the annotation of nodes where the operator evicts pods, so that k8s-driver-manager does not.
	upgradeEnabled = "nvidia.com/gpu-driver-upgrade-enabled"
	// vendorPrefix starts the resources of GPUs.
	vendorPrefix = "nvidia.com/"
)

// pausedOperands are those whose pods k8s-driver-manager evicts from the node before it unloads a driver.
var pausedOperands = []string{
	"operator-validator", "container-toolkit", "device-plugin", "gpu-feature-discovery", "dcgm-exporter", "dcgm",
	"nvsm", "mig-manager",
}

// Labels of Node Feature Discovery.
const (
	discoveryPCI       = "feature.node.kubernetes.io/pci-10de.present"
	discoveryPCI3D     = "feature.node.kubernetes.io/pci-0302_10de.present"
	discoveryKernel    = "feature.node.kubernetes.io/kernel-version.full"
	discoveryOSID      = "feature.node.kubernetes.io/system-os_release.ID"
	discoveryOSVersion = "feature.node.kubernetes.io/system-os_release.VERSION_ID"

	discoveryPrefix = "feature.node.kubernetes.io/"
	// featureLabels is the annotation in which Node Feature Discovery lists its labels, without their prefix. gpu-node
	// discover does not write these.
	featureLabels = "nfd.node.kubernetes.io/feature-labels"
	// discoveredLabels is the annotation in which gpu-node discover lists its labels.
	discoveredLabels = "nvidia.com/gpu-operator.discovered-labels"
)

// healthReport is the annotation in which the health agent of a node reports.
const healthReport = "nvidia.com/gpu-operator.gpu-health"

// Labels and annotations that mark a simulated node and describe its hardware and host. They are on the Node, so that
// a test or a user can create one by the API alone.
const (
	// simulatedLabel is the label by which the simulator selects nodes, the same as in kwok's examples.
	simulatedLabel = "type"
	simulatedValue = "kwok"
	// kwokAnnotation makes kwok renew the node's lease.
	kwokAnnotation = "kwok.x-k8s.io/node"
	kwokValue      = "fake"

	annotationPrefix        = "simulator.gpu-operator/"
	annotationGPUs          = annotationPrefix + "gpus"
	annotationDriverOnHost  = annotationPrefix + "driver-on-host"
	annotationToolkitOnHost = annotationPrefix + "toolkit-on-host"
	annotationProcesses     = annotationPrefix + "processes"
	annotationModel         = annotationPrefix + "gpu-model"
	// annotationDiscovery states what labels the node; without it nothing does after its creation.
	annotationDiscovery = annotationPrefix + "discovery"

	// UnhealthyAnnotation of a Node is how many of its devices the device plugin finds unhealthy. It does not notice that
	// one has recovered until it is restarted.
	UnhealthyAnnotation = annotationPrefix + "unhealthy-gpus"

	// ExitAfterAnnotation makes a pod that does not restart succeed after this duration. Without it, such a pod runs
	// until it is deleted.
	ExitAfterAnnotation = annotationPrefix + "exit-after"
	// IgnoresTermAnnotation, if "true", makes a deleted pod take its whole grace period.
	IgnoresTermAnnotation = annotationPrefix + "ignores-sigterm"
)
