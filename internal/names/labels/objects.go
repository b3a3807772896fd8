package labels

// Labels and annotations of the objects that the operator applies.
const (
	// App names the operand's pods. NVSentinel and k8s-driver-manager find pods by its value, such as
	// nvidia-driver-daemonset. It is in the selector of every DaemonSet, so each DaemonSet of an operand with
	// several has a value of its own: its name.
	App = "app"
	// ManagedBy is set on every object and pod. Its value ManagedByValue scopes the operator's caches, and
	// NVSentinel selects by it together with App.
	ManagedBy = "app.kubernetes.io/managed-by"
	// ManagedByValue is the value of ManagedBy.
	ManagedByValue = "gpu-operator"
	// Name is set by the chart and by config/default on the objects of an installation, with the value gpu-operator.
	Name = "app.kubernetes.io/name"
	// Version is set by the chart on the objects of an installation: the version of the operator.
	Version = "app.kubernetes.io/version"
	// PartOf is in the selector of some DaemonSets of NVIDIA's operator, beside App. They keep it when they are taken
	// over.
	PartOf = "app.kubernetes.io/part-of"
	// Component is set on the pods of this operator and of NVIDIA's, by which that one is found.
	Component = "app.kubernetes.io/component"
	// DriverComponent is the value of Component of all driver pods, of this operator and of NVIDIA's.
	DriverComponent = "nvidia-driver"
	// TemplateGeneration is a label of DaemonSet pods, written and read by the DaemonSet controller, which finds those
	// that are up to date by it. Removed from pods that get another DaemonSet: its generation may be equal.
	TemplateGeneration = "pod-template-generation"
	// NVIDIAHash is an annotation of objects that NVIDIA's operator has written: the digest of the object. It is removed
	// when an object is taken over from it.
	NVIDIAHash = "nvidia.com/last-applied-hash"
	// Operand is the name of the operand that an object belongs to. Pruning lists objects by it.
	Operand = "nvidia.com/gpu-operator.operand"
	// Digest is an annotation: the digest of the object that was last applied.
	Digest = "nvidia.com/gpu-operator.digest"
	// EditInstead is an annotation of objects that users may want to edit: what to do instead, as the operator reverts
	// edits. Read by users and by the operator, which repeats it in an Event.
	EditInstead = "nvidia.com/gpu-operator.edit-instead"
	// TemplateDigest is an annotation of a DaemonSet and of its pods: the digest of the significant fields of
	// the pod template. A pod whose value differs from its DaemonSet's is outdated.
	TemplateDigest = "nvidia.com/gpu-operator.template-digest"
	// HelperImage is an annotation of a DaemonSet: the image of the on-node program that it was applied with.
	// The DaemonSet keeps it until its pods change for another reason. Absent where the spec names the image.
	HelperImage = "nvidia.com/gpu-operator.helper-image"
	// AppliedSpec is an annotation of the Service of the operator's metrics, which exists whatever the spec:
	// the generation and the digest of the spec that was last applied. A spec that equals it has lost no
	// field to a CRD that is older than the operator.
	AppliedSpec = "nvidia.com/gpu-operator.applied-spec"
	// ProbeScript is the ConfigMap in which NVIDIA's operator keeps the start-up probe of drivers, a script. It
	// stays while pods mount it.
	ProbeScript = "nvidia-driver-startup-probe"
	// ProbeScriptMounted is an annotation of a driver's DaemonSet with pods of NVIDIA's operator, which mount
	// ProbeScript.
	ProbeScriptMounted = "nvidia.com/gpu-operator.probe-script-mounted"
	// ChartNotes is an annotation of the ClusterPolicy: what the notes of the chart say of values that are not in the
	// policy, a sentence a line. Written by the chart.
	ChartNotes = "nvidia.com/gpu-operator.chart-notes"
	// DriverPull is the label of the pods that only pull the images of a new driver on a node, "true". It is what the
	// upgrade controller finds them by.
	DriverPull = "nvidia.com/gpu-operator.driver-pull"
	// DriverManagerContainer is the init container of driver pods that unloads an earlier driver.
	DriverManagerContainer = "k8s-driver-manager"
	// Undecodable is an annotation of objects as programs of this project read them, never of those in the API server: a
	// sentence without its subject, about the fields that cannot be decoded, which the object lacks. Written by package
	// undecodable.
	Undecodable = "nvidia.com/gpu-operator.undecodable"
	// RemovalFinalizer is the finalizer of the active ClusterPolicy. The operator removes it once the stack is gone from
	// all nodes.
	RemovalFinalizer = "nvidia.com/gpu-operator.removal"
	// HandOverFinalizer holds driver DaemonSets of NVIDIA's operator until all of them are being deleted.
	HandOverFinalizer = "nvidia.com/gpu-operator.hand-over"
	// CleanupOperand is the value of Operand on the DaemonSet that cleans up the hosts while the stack is removed, and on
	// its pods. It is no operand of the catalogue.
	CleanupOperand = "node-cleanup"
	// FieldOwner is the field manager of every server-side apply.
	FieldOwner = "gpu-operator"
	// NVIDIAFieldManager is the field manager of the updates of NVIDIA's operator, which client-go takes from the name
	// of its program.
	NVIDIAFieldManager = "gpu-operator"
	// ConfigManagerContainer runs gpu-node configure, and ConfigManagerInitContainer runs it once before the program that
	// reads the configuration. Both have the names of the containers in which NVIDIA runs config-manager.
	ConfigManagerContainer     = "config-manager"
	ConfigManagerInitContainer = "config-manager-init"
	// WaitContainer is the init container that render generates from the graph's edges.
	WaitContainer = "gpu-node-wait"
	// CopyContainer is the init container that copies gpu-node into a pod that waits for nothing.
	CopyContainer = "gpu-node-copy"
	// CopyToFlag makes gpu-node copy itself to a directory before it waits. Written by render and by the
	// toolkit's manifest, read by gpu-node.
	CopyToFlag = "--copy-to="
	// WaitForFlag is the argument with the markers to wait for, separated by commas. Written by render, read
	// by gpu-node and by the assessment of a pod that waits.
	WaitForFlag = "--for="
	// InjectedFlag is the argument of a wait for the driver after which GPUs are injected. Written by render,
	// read by gpu-node.
	InjectedFlag = "--injected"
)

// IsApplied reports whether an operator of this project has applied the object, for any policy.
func IsApplied(object interface {
	GetLabels() map[string]string
	GetAnnotations() map[string]string
}) bool {
	all := object.GetLabels()
	return all[ManagedBy] == ManagedByValue && all[Operand] != "" && object.GetAnnotations()[Digest] != ""
}

// PodSecurity returns the labels of a namespace by which Pod Security Admission enforces, audits and warns.
func PodSecurity() []string {
	const prefix = "pod-security.kubernetes.io/"
	return []string{prefix + "enforce", prefix + "audit", prefix + "warn"}
}

// PodSecurityBefore is an annotation of the operator's Namespace: the PodSecurity labels that another writer
// had set before the operator did, as KEY=VALUE, separated by commas. They are restored on uninstall.
const PodSecurityBefore = "nvidia.com/gpu-operator.pod-security-before"

// ClusterMonitoring is the label of namespaces that OpenShift's cluster monitoring scrapes, "true".
const ClusterMonitoring = "openshift.io/cluster-monitoring"

// PodSecurityPrivileged is the value of the PodSecurity labels that admits all pods.
const PodSecurityPrivileged = "privileged"

// DefaultRuntimeClass is the RuntimeClass, and the handler in the container runtime, that the
// container toolkit configures. Set by spec.operator.runtimeClass.
const DefaultRuntimeClass = "nvidia"

// With spec.cdi.nriPluginEnabled, the toolkit's NRI plugin gives a container the CDI devices that an
// annotation of its pod names, NRIContainerPrefix followed by the container's name. ManagementGPUs are all
// GPUs of the node; the plugin grants them in the operator's namespace alone.
const (
	NRIContainerPrefix = "nvidia.cdi.k8s.io/container."
	ManagementGPUs     = "management.nvidia.com/gpu=all"
)

// The environment variable by which containers request GPUs, and its value for those that need none.
const (
	VisibleDevices   = "NVIDIA_VISIBLE_DEVICES"
	NoVisibleDevices = "void"
)

// AgentPolicyBinding is the name of the ValidatingAdmissionPolicy that limits what pods of node discovery, the health
// agent, mig-manager and the driver write on nodes, and of its binding, by which the operator detects that it is in
// force. It ships with every installer except the Operator Lifecycle Manager, whose bundles cannot contain it.
const AgentPolicyBinding = "gpu-operator-node-agents"

// TestPodPriorityClass is the PriorityClass of the pod that "gpu-node validate plugin --with-workload"
// starts. It ships with the installer, below every other class and with preemptionPolicy Never: the pod
// preempts no other pod, and every other pod preempts it.
const TestPodPriorityClass = "gpu-operator-validation"
