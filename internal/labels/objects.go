package labels

// Labels and annotations of the objects that the operator applies.
const (
	// App names the operand's pods. NVSentinel and k8s-driver-manager find pods by its value,
	// such as nvidia-driver-daemonset. It is in the selector of every DaemonSet, so that an operand with several
	// DaemonSets has a value for each: their names.
	App = "app"
	// ManagedBy is set on every object and pod. Its value ManagedByValue scopes the operator's
	// caches, and NVSentinel looks for it beside App.
	ManagedBy = "app.kubernetes.io/managed-by"
	// ManagedByValue is the value of ManagedBy.
	ManagedByValue = "gpu-operator"
	// Operand is the name of the operand that an object belongs to; prune lists by it.
	Operand = "nvidia.com/gpu-operator.operand"
	// Digest is an annotation: the digest of the intent that was last applied.
	Digest = "nvidia.com/gpu-operator.digest"
	// TemplateDigest is an annotation of a DaemonSet and of its pods: the digest of what matters
	// in the pod template. A pod whose value differs from its DaemonSet's is outdated.
	TemplateDigest = "nvidia.com/gpu-operator.template-digest"
	// HelperImage is an annotation of a DaemonSet: the image of the on-node program that it was applied with, and that it
	// keeps while nothing else in its pods changes. It is left out where the spec names that image.
	HelperImage = "nvidia.com/gpu-operator.helper-image"
	// Unrolled is an annotation of a DaemonSet whose pods are left as they are, by the strategy OnDelete, though
	// its template has changed: by nothing that matters to them. It goes with the next change that does.
	Unrolled = "nvidia.com/gpu-operator.unrolled"
	// AppliedSpec is an annotation of the Service of the operator's metrics, which is there whatever the spec says:
	// the generation and the digest of the spec that was last applied. A spec that equals it has lost nothing
	// to a definition that is older than the operator.
	AppliedSpec = "nvidia.com/gpu-operator.applied-spec"
	// ProbeScript is the ConfigMap of older releases that the start-up probe of drivers was a script of. It stays while
	// pods mount it.
	ProbeScript = "nvidia-driver-startup-probe"
	// ProbeScriptMounted is an annotation of a driver's DaemonSet: pods of an earlier template are left, which mount
	// ProbeScript.
	ProbeScriptMounted = "nvidia.com/gpu-operator.probe-script-mounted"
	// FieldOwner is the field manager of every server-side apply.
	FieldOwner = "gpu-operator"
	// WaitContainer is the init container that render generates from the graph's edges.
	WaitContainer = "gpu-node-wait"
	// CopyContainer is the init container by which render copies gpu-node into a pod that waits for nothing.
	CopyContainer = "gpu-node-copy"
	// CopyToFlag has gpu-node copy itself to a directory before it waits. Written by render and by the toolkit's
	// manifest, read by gpu-node.
	CopyToFlag = "--copy-to="
	// WaitForFlag is the argument by which it is told the markers, separated by commas. Written by
	// render, read by gpu-node and by the assessment of a pod that waits.
	WaitForFlag = "--for="
	// InjectedFlag is the argument of a wait for the driver after which GPUs are injected. Written by render, read by
	// gpu-node.
	InjectedFlag = "--injected"
)

// IsApplied reports whether an operator of this project has applied the object, for whichever policy.
func IsApplied(object interface {
	GetLabels() map[string]string
	GetAnnotations() map[string]string
}) bool {
	all := object.GetLabels()
	return all[ManagedBy] == ManagedByValue && all[Operand] != "" && object.GetAnnotations()[Digest] != ""
}

// PodSecurity are the labels of a namespace by which Pod Security Admission decides, warns and audits, and
// PodSecurityPrivileged is their value that lets all pods in.
func PodSecurity() []string {
	const prefix = "pod-security.kubernetes.io/"
	return []string{prefix + "enforce", prefix + "audit", prefix + "warn"}
}

// PodSecurityBefore is an annotation of the operator's Namespace: the labels among PodSecurity that others had set before the
// operator did, as KEY=VALUE, separated by commas. They are put back in the end.
const PodSecurityBefore = "nvidia.com/gpu-operator.pod-security-before"

// PodSecurityPrivileged lets all pods in.
const PodSecurityPrivileged = "privileged"

// DefaultRuntimeClass is the RuntimeClass, and the handler in the container runtime, that the
// container toolkit configures. Set by spec.operator.runtimeClass.
const DefaultRuntimeClass = "nvidia"

// Where spec.cdi.nriPluginEnabled is set, the toolkit's plugin gives a container the CDI devices that an
// annotation of its pod names, NRIContainerPrefix followed by the container's name. ManagementGPUs are all
// GPUs of the node; the plugin grants them in the operator's namespace alone.
const (
	NRIContainerPrefix = "nvidia.cdi.k8s.io/container."
	ManagementGPUs     = "management.nvidia.com/gpu=all"
)

// The environment variable by which containers ask for GPUs, and its value in those that need none.
const (
	VisibleDevices   = "NVIDIA_VISIBLE_DEVICES"
	NoVisibleDevices = "void"
)

// DiscoveryFence is the name of the ValidatingAdmissionPolicy that bounds what the pods of node discovery write
// on nodes, and of its binding, by which the operator knows that it is in force. It ships with the installer,
// but for that of the Operator Lifecycle Manager, whose bundles hold none.
const DiscoveryFence = "gpu-operator-node-discovery"

// WorkloadPriorityClass is the PriorityClass of the pod that "gpu-node validate plugin
// --with-workload" starts. It ships with the installer, below every other class and with
// preemptionPolicy Never: the pod takes a GPU from nobody, and anybody takes it back.
const WorkloadPriorityClass = "gpu-operator-validation"
