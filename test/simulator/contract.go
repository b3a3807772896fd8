package simulator

import corev1 "k8s.io/api/core/v1"

// What the simulator knows of the GPU stack. Written down here rather than taken from the operator's
// packages, so that a mistake there does not hide itself.
const (
	appLabel     = "app"
	appDriver    = "nvidia-driver-daemonset"
	appToolkit   = "nvidia-container-toolkit-daemonset"
	appPlugin    = "nvidia-device-plugin-daemonset"
	appValidator = "nvidia-operator-validator"

	// deployPrefix precedes the operand's name in the node selector of its pods, but for the driver's and the
	// toolkit's, which DaemonSets select by affinity: that is not in their pods.
	deployPrefix   = "nvidia.com/gpu.deploy."
	operandDriver  = "driver"
	operandToolkit = "container-toolkit"

	// resourceGPU is what the device plugin advertises.
	resourceGPU corev1.ResourceName = "nvidia.com/gpu"

	// runtimePrefix starts the names of the runtime classes whose handler the toolkit installs.
	runtimePrefix = "nvidia"

	markerDriver  = "driver"
	markerToolkit = "toolkit"
	markerPlugin  = "plugin"
)

// deployPaused is what k8s-driver-manager makes of a deploy label that is true, while it replaces the
// driver.
const (
	deployTrue   = "true"
	deployPaused = "paused-for-driver-upgrade"
)

// pausedOperands are those whose pods k8s-driver-manager has leave the node before it unloads a driver.
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
	// featureLabels is the annotation in which Node Feature Discovery lists its labels, without their
	// prefix. gpu-node discover leaves a node alone that has it.
	featureLabels = "nfd.node.kubernetes.io/feature-labels"
	// discoveredLabels is the annotation in which gpu-node discover lists its labels.
	discoveredLabels = "nvidia.com/gpu-operator.discovered-labels"
)

// What marks a simulated node, and what its hardware and host are like. They are kept on the Node,
// so that a test or a user can make one with nothing but the API.
const (
	// simulatedLabel is the label that the simulator selects nodes by, as kwok's own examples do.
	simulatedLabel = "type"
	simulatedValue = "kwok"
	// kwokAnnotation has kwok renew the node's lease.
	kwokAnnotation = "kwok.x-k8s.io/node"
	kwokValue      = "fake"

	annotationPrefix        = "simulator.gpu-operator/"
	annotationGPUs          = annotationPrefix + "gpus"
	annotationDriverOnHost  = annotationPrefix + "driver-on-host"
	annotationToolkitOnHost = annotationPrefix + "toolkit-on-host"
	annotationProcesses     = annotationPrefix + "processes"
	// annotationDiscovery says who labels the node; without it, it has been labelled from its creation.
	annotationDiscovery = annotationPrefix + "discovery"

	// ExitAfterAnnotation on a pod that is not to be restarted makes it succeed after this duration.
	// Without it, such a pod runs until it is deleted.
	ExitAfterAnnotation = annotationPrefix + "exit-after"
)
