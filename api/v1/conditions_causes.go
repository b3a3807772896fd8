package v1

// Reasons of a node whose pod of an operand is missing, or that cannot be reached, beside PodMissing.
const (
	// ReasonNodeUnreachable: the kubelet no longer answers, so that what the API shows of the node is outdated.
	// Cause: the node is down, has lost its network, or its kubelet has stopped.
	// Remedy: restore the node, or delete it from the cluster.
	ReasonNodeUnreachable = "NodeUnreachable"
	// ReasonUntoleratedTaint: a taint of the node keeps the operand's DaemonSet off the node.
	// Cause: the DaemonSet does not tolerate the taint that the message names.
	// Remedy: add the toleration to spec.daemonsets.tolerations or to the operand's tolerations, or remove the taint.
	ReasonUntoleratedTaint = "UntoleratedTaint"
	// ReasonQuotaExceeded: a ResourceQuota of the operator's namespace does not allow another pod.
	// Cause: the quota is used up, or requires limits that the pods do not set. Or the cluster requires a quota for the
	// priority class and there is none, as on GKE.
	// Remedy: raise or remove the ResourceQuota, or create one for the priority class of the pods.
	ReasonQuotaExceeded = "QuotaExceeded"
	// ReasonPodSecurityDenied: the Pod Security level of the operator's namespace forbids the operand's pods.
	// Cause: the namespace enforces the level baseline or restricted, and the operands need privileged.
	// Remedy: set spec.psa.enabled to true, or label the namespace pod-security.kubernetes.io/enforce=privileged.
	ReasonPodSecurityDenied = "PodSecurityDenied"
	// ReasonAdmissionDenied: an admission webhook or policy forbids the operand's pods, or a webhook does not answer.
	// Cause: the webhook or ValidatingAdmissionPolicy that the message names.
	// Remedy: exempt the operator's namespace from it, or repair the webhook.
	ReasonAdmissionDenied = "AdmissionDenied"
	// ReasonFailedCreate: the DaemonSet controller cannot create the operand's pods for another reason.
	// Cause: the error in the message, from the Events of the DaemonSet.
	// Remedy: fix that error; the controller retries on its own.
	ReasonFailedCreate = "FailedCreate"
)

// Reasons of a driver that does not fit the kernel of its node, such as after an update of the kernel.
const (
	// ReasonKernelHeadersMissing: the driver container finds no headers for the kernel of the node, so that it cannot
	// build its modules.
	// Cause: the package repositories that it uses do not have the headers of this kernel, or cannot be reached.
	// Remedy: name repositories that have them in spec.driver.repoConfig, boot a kernel that they are for, or set
	// spec.driver.usePrecompiled.
	ReasonKernelHeadersMissing = "KernelHeadersMissing"
	// ReasonKernelModuleRejected: the kernel of the node does not load a module of the driver.
	// Cause: Secure Boot is on, and the module is not signed with a key that the machine trusts.
	// Remedy: use an image with signed modules and spec.driver.usePrecompiled, install the driver on the hosts, or turn
	// Secure Boot off.
	ReasonKernelModuleRejected = "KernelModuleRejected"
)

// Reasons that the scheduler and the kubelet set, and that the operator reports unchanged.
const (
	// ReasonFailedMount: the kubelet cannot mount a volume of the operand's pod.
	// Cause: a ConfigMap or Secret that the message names does not exist or has no such key, or a path on the host is not
	// what the volume needs.
	// Remedy: create the object, or correct the field of the spec that names it; the kubelet retries on its own.
	ReasonFailedMount = "FailedMount"
	// ReasonFailedCreatePodSandBox: the container runtime cannot create the operand's pod.
	// Cause: it does not know the handler of the pod's RuntimeClass, its network plugin fails, or it cannot pull the image
	// of the sandbox.
	// Remedy: if a handler is missing, read the log of the container toolkit on the node, and check that the runtime was
	// restarted. Otherwise repair the network plugin or the runtime.
	ReasonFailedCreatePodSandBox = "FailedCreatePodSandBox"
	// ReasonUnschedulable: the scheduler finds no place for the operand's pod on its node.
	// Cause: the node has not enough CPU, memory or pod slots left, or the pod requires what the node does not have.
	// Remedy: free resources on the node, lower the operand's resources, or set a priority class in
	// spec.daemonsets.priorityClassName.
	ReasonUnschedulable = "Unschedulable"
	// ReasonCrashLoopBackOff: a container of an operand ends again and again.
	// Cause: the error of its last run, which the message quotes where the container has reported one. OOMKilled means
	// that the memory limit is too low.
	// Remedy: fix that error; read the log with kubectl logs --previous. Deleting the pod avoids the kubelet's back-off.
	ReasonCrashLoopBackOff = "CrashLoopBackOff"
	// ReasonImagePullBackOff: the image of a container cannot be pulled.
	// Cause: the image does not exist, the registry cannot be reached, or it requires credentials.
	// Remedy: check repository, image and version in the operand's block, and imagePullSecrets.
	ReasonImagePullBackOff = "ImagePullBackOff"
	// ReasonErrImageNeverPull: the image is not on the node, and the pull policy forbids pulling it.
	// Cause: imagePullPolicy is Never.
	// Remedy: load the image on the node, or change imagePullPolicy.
	ReasonErrImageNeverPull = "ErrImageNeverPull"
	// ReasonInvalidImageName: the image reference of a container is malformed.
	// Cause: repository, image and version in the operand's block do not form a valid reference.
	// Remedy: correct them.
	ReasonInvalidImageName = "InvalidImageName"
	// ReasonImageInspectError: the container runtime cannot read the image on the node.
	// Cause: the image store of the node is damaged or full.
	// Remedy: remove the image on the node, so that it is pulled again, and check the disk.
	ReasonImageInspectError = "ImageInspectError"
	// ReasonCreateContainerConfigError: the kubelet cannot prepare the configuration of a container.
	// Cause: a ConfigMap or Secret that the container refers to does not exist, or has no such key.
	// Remedy: create the object; kubectl describe pod shows its name.
	ReasonCreateContainerConfigError = "CreateContainerConfigError"
	// ReasonCreateContainerError: the container runtime cannot create a container.
	// Cause: mostly an unknown runtime handler, an invalid mount or device, or a broken runtime configuration.
	// Remedy: read the pod's Events, and the log of the container runtime on the node.
	ReasonCreateContainerError = "CreateContainerError"
	// ReasonRunContainerError: the container runtime cannot start a container.
	// Cause: mostly a missing binary, library or device, or an error of the NVIDIA runtime hook.
	// Remedy: read the pod's Events, and the log of the container runtime on the node.
	ReasonRunContainerError = "RunContainerError"
)
