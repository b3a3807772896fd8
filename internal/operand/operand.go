package operand

import (
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
)

// Name of an operand: its folder in assets, the suffix of its deploy label, its key in status.
type Name string

// DeployLabel returns the node label that selects the nodes of the operand's DaemonSets.
func (n Name) DeployLabel() string { return labels.DeployPrefix + string(n) }

// Scope is where a requirement applies.
type Scope int

const (
	// Node: the required operand works on the same node before the operand's containers start there.
	Node Scope = iota
	// Cluster: the objects of the required operand exist before this operand is applied.
	Cluster
)

// Requirement is an edge of the graph: a condition for the start of an operand.
type Requirement struct {
	// On is the required operand.
	On Name
	// Scope of the requirement.
	Scope Scope
	// Marker proves a requirement of scope Node; empty for scope Cluster.
	Marker labels.Marker
}

// Proof declares that a container of an operand's pod writes a marker. Of several operands that can write the same
// marker, only the first installed one in graph order does.
type Proof struct {
	// Marker that is written.
	Marker labels.Marker
	// Of is the operand that the marker validates.
	Of Name
	// Container is the init container that writes it.
	Container string
	// OnlyWithOperand drops the proof if that operand is not installed. Otherwise the marker is still written, as the
	// host may provide what the operand would install.
	OnlyWithOperand bool
}

// An Operand is one component of the GPU stack: data, and functions without side effects.
type Operand struct {
	// Name of the operand.
	Name Name
	// Workloads of the nodes that it serves. None: it has no pods on GPU nodes.
	Workloads []nodeinfo.Workload
	// Discovers marks the operand that labels the nodes with GPUs. It runs on every Linux node, and is applied before all
	// operands with pods on GPU nodes, as their nodes are selected by its labels.
	Discovers bool
	// Stage that a node has reached when the operand's pod is ready there. Empty for auxiliary operands and for those that
	// do not run on GPU nodes.
	Stage v1.Stage
	// Images are the default images of its containers, that of the main container first. Images of other operands are
	// not included.
	Images []image.Default
	// Requires are the operand's edges in the graph, which must be acyclic; see NewCatalogue.
	Requires []Requirement
	// Proofs are the proofs of the markers that the operand's pods can write.
	Proofs []Proof
	// NeedsInjection operands get the GPU from the container runtime. Their pods run with the RuntimeClass, and so cannot
	// start before the toolkit works. Without one (Input.PodRuntimeClass) they start, but get no GPU until then.
	NeedsInjection bool
	// Follows is an operand whose deploy label also keeps this one off a node: tools that drain GPU work by label use
	// only the other name. Empty for none.
	Follows Name
	// PartitionsGPUs: the operand partitions the GPUs of the node as labels.MIGConfig requests, and reports the outcome in
	// labels.MIGConfigState.
	PartitionsGPUs bool
	// LogContainer is the container whose log says why a partitioning has failed; only with PartitionsGPUs.
	LogContainer string
	// ReportsHealth: the operand reports the faults of the node's GPUs in the annotation labels.GPUHealth.
	ReportsHealth bool
	// IsInjector marks the injector: the operand that configures the container runtime of the node to inject GPUs.
	IsInjector bool
	// DaemonSet is the name of the DaemonSet of an operand that has one for each variant of nodes: that of the first
	// variant, as NVIDIA's operator names it. The DaemonSets of other variants have a suffix. The nodes of such an
	// operand have an anchor. Empty for an operand without variants, whose manifest has the name.
	DaemonSet string
	// UpdatesOnDelete operands are never rolled out by their DaemonSet: a pod is replaced only when it is deleted, as
	// replacing it disrupts the GPU work on the node.
	UpdatesOnDelete bool

	// Serves decides whether a node of the right workload can be served. Nil serves every node.
	Serves func(nodeinfo.Facts) Decision
	// ServesNode replaces Serves if the decision depends on the spec. Nil for the others.
	ServesNode func(Input, nodeinfo.Facts) Decision
	// PerPool: the operand has one instance per driver pool, and serves no node whose pool is unknown.
	PerPool bool
	// ServesPool decides whether the nodes of a pool can be served as the spec requires; if not, what runs there is kept.
	// Nil serves every pool; only set with PerPool.
	ServesPool func(Input, nodeinfo.Pool) Decision
	// Placement returns the placement of its pods in the spec. Nil for an operand without pods.
	Placement func(Input) Placement
	// Decide decides from the spec whether the operand is installed.
	Decide func(Input) Decision
	// Instances returns the renderings of the operand's templates: one, or one for each variant of nodes. The plan adds
	// those of node pools. The pools are those that ServesPool serves.
	Instances func(Input, []nodeinfo.Pool) ([]Instance, error)
	// References returns the objects that the operator does not create and that its pods need, by the fields of the spec
	// that name or need them. Nil for none.
	References func(Input) []Use
	// Doubtful returns a sentence for each field of the spec that may not mean what its author intended, because of the
	// objects that References returns. Nil for none.
	Doubtful func(Input) []string
	// DoubtfulOnPool does so for what the nodes of a driver pool do not take; nil for none.
	DoubtfulOnPool func(Input, nodeinfo.Pool) []string
	// Varies reports whether a node pool overrides a field of it, so that its nodes get DaemonSets of their own.
	// Nil if no node pool can.
	Varies func(v1.NodePoolSpec) bool
	// HostRuntime returns what the spec tells of the container runtime that the operand configures. Nil for one that
	// configures none.
	HostRuntime func(Input) HostRuntime
	// Layout returns the MIG layout that the operator requests for the nodes that it runs on, empty for none. Nil for an
	// operand that does not partition GPUs.
	Layout func(Input) string
}

// HostRuntime is what the spec tells of the container runtime of the hosts.
type HostRuntime struct {
	// Files are the configuration files of the runtime, and Sockets those on which it listens, by their paths on the host.
	Files, Sockets []string
	// Keep: the runtime must not be signalled.
	Keep bool
}

// Choice is the outcome of a Decision.
type Choice int

const (
	// Install the operand.
	Install Choice = iota
	// Absent: the operand is not to be installed; what exists of it is removed.
	Absent
	// Refused: the operand cannot be installed now, or not as specified; what exists of it is kept.
	Refused
)

// Decision is a choice with its reason. Reason and message reach the user unchanged.
type Decision struct {
	Choice  Choice
	Reason  string
	Message string
	// OptionalForDependents: the operands that require this absent operand work without it, and do not wait for it.
	OptionalForDependents bool
}

// Accept returns the decision to install.
func Accept() Decision { return Decision{} }

// Disabled returns the decision for an operand that the field disables.
func Disabled(field string) Decision {
	return Decision{Choice: Absent, Reason: v1.ReasonDisabledBySpec, Message: field + " is false"}
}

// Unnecessary returns the decision for an operand that neither the nodes nor the operands which require it need.
func Unnecessary(message string) Decision {
	return Decision{Choice: Absent, Reason: v1.ReasonDisabledBySpec, Message: message, OptionalForDependents: true}
}

// Refuse returns the decision for what cannot be served now, or not as specified.
func Refuse(reason, message string) Decision {
	return Decision{Choice: Refused, Reason: reason, Message: message}
}

// Instance is one rendering of an operand's templates.
type Instance struct {
	// Suffix of the names of its objects; empty for an operand's only instance.
	Suffix string
	// Pool restricts it to the nodes of one driver pool; empty for all nodes of the operand.
	Pool string
	// NodePool restricts it to the nodes of that node pool; empty for the nodes that get the operand from
	// the rest of the spec.
	NodePool string
	// Layout restricts it to the nodes whose container runtime has this layout; empty for all.
	Layout string
	// Image and Version of its main container, for status.
	Image, Version string
	// PullSecrets of its pods.
	PullSecrets []string
	// Main is the container that Container configures.
	Main string
	// Container is the spec of the main container.
	Container v1.ContainerSpec
	// PluginConfig is the device plugin's configuration that the main container reads; nil if it reads none.
	PluginConfig *PluginConfig
	// InitEnv is added to the environment of init containers, by their names.
	InitEnv map[string][]v1.EnvVar
	// ContainerFiles are the containers that stand in files of their own and that this instance has, in the order in
	// which they are appended to the pod: names of files in assets/NAME/containers.
	ContainerFiles []string
	// Additions are optional settings of containers, by their names.
	Additions map[string]Additions
	// Volumes are appended to those of the templates.
	Volumes []corev1.Volume
	// ProvidedVolumes are the names of those that the container runtime mounts in any case: pods have neither them nor
	// their mounts. The template digest has them, so that no driver becomes outdated when this list changes.
	ProvidedVolumes []string
	// TrustStores are files of the images, by container, as which the bundle of spec.global.caBundle is mounted for
	// programs that do not read SSL_CERT_FILE, such as package managers.
	TrustStores map[string]string
	// Monitor is what the ServiceMonitor and the PrometheusRule of the templates have in common with all others.
	// The zero value leaves both out.
	Monitor Monitor
	// Values are .Values of the operand's templates.
	Values any
}

// PluginConfig makes an instance read a configuration of the device plugin: Content, or else one of a ConfigMap that
// the node selects by label. For the latter, render adds gpu-node configure to its pods, to which the other fields
// belong.
type PluginConfig struct {
	// Content is the configuration of all its nodes, in YAML.
	Content string
	// ConfigMap has the configurations, one per key.
	ConfigMap string
	// Default is the key for nodes that select none; empty for an empty configuration.
	Default string
	// Process is the exact argv[0] of the main container's program, by which its process is found. It gets SIGHUP when the
	// node selects another configuration.
	Process string
}

// AnchorLabel returns the node label that keeps the operand's pod on a node which has lost another label that its
// DaemonSet selects by; empty for an operand whose nodes have no anchor.
func (o *Operand) AnchorLabel() string {
	if o.DaemonSet == "" {
		return ""
	}
	return labels.AnchorPrefix + string(o.Name)
}

// Variant returns the variant of nodes that the instance is for: a label value, such as ubuntu24.04-amd64 of a driver
// or containerd of a toolkit. Empty for an operand without variants.
func (i Instance) Variant() string { return Variant(i.Pool, i.Layout, i.NodePool) }

// Variant returns the variant of the nodes in a driver pool, or else of those with a layout of the container runtime in
// a node pool, empty for none.
func Variant(pool, layout, nodePool string) string {
	if pool != "" || layout == "" {
		return pool
	}
	return nodeinfo.WithSuffix(layout, nodePool)
}

// ServesWorkload reports whether the operand has pods on nodes of this workload.
func (o *Operand) ServesWorkload(w nodeinfo.Workload) bool {
	for _, served := range o.Workloads {
		if served == w {
			return true
		}
	}
	return false
}

// VariesIn reports whether the nodes of this node pool get DaemonSets of their own.
func (o *Operand) VariesIn(nodePool v1.NodePoolSpec) bool {
	return o.Varies != nil && o.Varies(nodePool)
}

// NodePoolLabel returns the node label by which the DaemonSets of a node pool select their nodes and the common one
// excludes them; empty if no node pool can override the operand, or if the label of the driver pool selects.
func (o *Operand) NodePoolLabel() string {
	if o.Varies == nil || o.PerPool {
		return ""
	}
	return labels.NodePoolPrefix + string(o.Name)
}
