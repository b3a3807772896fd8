package operand

import (
	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/image"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/nodeinfo"
)

// Name of an operand: its folder in assets, the end of its deploy label, its key in status.
type Name string

// DeployLabel is the node label that selects the nodes of the operand's DaemonSets.
func (n Name) DeployLabel() string { return labels.DeployPrefix + string(n) }

// Scope tells where a requirement must hold.
type Scope int

const (
	// Node: the required operand works on the same node before our containers start there.
	Node Scope = iota
	// Cluster: what the required operand applies exists before this operand is applied.
	Cluster
)

// Requirement is an edge of the graph: what must be true before an operand starts.
type Requirement struct {
	// On is the operand that comes first.
	On Name
	// Scope of the requirement.
	Scope Scope
	// Marker proves a requirement of scope Node; empty for scope Cluster.
	Marker labels.Marker
}

// Proof says that a container of an operand's pod writes a marker. Of several operands that can
// prove the same marker, the first one in graph order that is installed is its only writer.
type Proof struct {
	// Marker that is written.
	Marker labels.Marker
	// Of is the operand that the marker speaks of.
	Of Name
	// Container is the init container that writes it.
	Container string
	// OnlyWithOperand drops the proof where that operand is not installed. Otherwise the marker is
	// proven all the same: the host may bring what the operand would install.
	OnlyWithOperand bool
}

// An Operand is one part of the GPU stack. It only answers questions.
type Operand struct {
	// Name of the operand.
	Name Name
	// Workloads are the kinds of nodes that it serves. None: it has no pods on GPU nodes.
	Workloads []nodeinfo.Workload
	// Discovers marks the operand that finds out which nodes have GPUs. It runs on every Linux node,
	// and comes before all that have pods on GPU nodes: those select nodes by what it finds.
	Discovers bool
	// Stage of a node's ladder that is reached when the operand's pod is ready there. Empty: the GPUs
	// can be used without it, and it is judged beside the ladder.
	Stage v1.Stage
	// Images are what its containers run by default, that of the main container first. Those of other operands are
	// not among them.
	Images []image.Default
	// Requires are the operand's edges; the whole must be acyclic, see NewCatalogue.
	Requires []Requirement
	// Proves are the markers that the operand's pods can write.
	Proves []Proof
	// Injected operands get the GPU from the container runtime: their pods run with the
	// RuntimeClass, and so cannot start before the toolkit works. Where there is none (Input.PodRuntimeClass),
	// they start, but their containers get no GPU before.
	Injected bool
	// Follows is an operand whose deploy label keeps this one off a node, too, whenever it keeps that one
	// off: whoever clears a node of GPU work by label knows the other name only. Empty for none.
	Follows Name
	// Injects marks the operand that has the container runtime of the node inject GPUs.
	Injects bool
	// DaemonSet is the name of the DaemonSet of an operand that has one for each kind of node (Kind): that of the first
	// kind which gets one, as NVIDIA's operator names it. Those of other kinds have a suffix. The nodes of such an
	// operand have an anchor. Empty for an operand without kinds, whose manifest has the name.
	DaemonSet string
	// UpdatesOnDelete operands are never rolled by their DaemonSet: a pod is replaced only when
	// it is deleted, as replacing it disturbs the GPU work of the node.
	UpdatesOnDelete bool

	// Serves tells why a node of the right workload cannot be served; empty if it can. Nil
	// serves every node.
	Serves func(nodeinfo.Facts) Decision
	// ServesNode tells the same where the spec has a say in it. Nil as with Serves.
	ServesNode func(Input, nodeinfo.Facts) Decision
	// PerPool: the operand has one instance per driver pool, and serves no node whose pool is not known.
	PerPool bool
	// ServesPool tells why the nodes of a pool cannot be served as the spec asks; what runs there is left
	// alone then. Nil serves every pool; only set with PerPool.
	ServesPool func(Input, nodeinfo.Pool) Decision
	// Placement is what the spec says of where its pods go. Nil for an operand without pods.
	Placement func(Input) Placement
	// Decide decides from the spec whether the operand is installed, and says why not.
	Decide func(Input) Decision
	// Instances are the runs of the operand's templates: one for each kind of node. The pools are those
	// that ServesPool serves.
	Instances func(Input, []nodeinfo.Pool) ([]Instance, error)
	// References are the objects of others that its pods cannot do without, by the fields of the spec that
	// name them or need them. Nil for none.
	References func(Input) []Use
	// Varies tells whether a pool of spec.nodePools says something else of it, so that the nodes of that pool
	// get DaemonSets of their own. Nil where no pool can.
	Varies func(v1.NodePoolSpec) bool
	// Labels are what a node that it runs on is labelled with where it has no such label yet: a
	// default that users change on the node. Nil for none.
	Labels func(Input) map[string]string
}

// Choice of a Decision.
type Choice int

const (
	// Install the operand.
	Install Choice = iota
	// Absent: the operand is not wanted; what is there of it is removed.
	Absent
	// Invalid: the operand cannot be installed as asked; what is there of it is left alone.
	Invalid
)

// Decision is a verdict with its reason; reason and message reach the user untouched.
type Decision struct {
	Choice  Choice
	Reason  string
	Message string
	// Unneeded: what an absent operand is for is not needed either, so that nothing waits for it.
	Unneeded bool
}

// Installed is the decision to install.
func Installed() Decision { return Decision{} }

// Disabled is the decision for an operand that the field turns off.
func Disabled(field string) Decision {
	return Decision{Choice: Absent, Reason: v1.ReasonDisabledBySpec, Message: field + " is false"}
}

// NotNeeded is the decision for an operand that the field makes needless, for itself and for those that
// require it.
func NotNeeded(message string) Decision {
	return Decision{Choice: Absent, Reason: v1.ReasonDisabledBySpec, Message: message, Unneeded: true}
}

// Refused is the decision for a spec or a node that cannot be served.
func Refused(reason, message string) Decision {
	return Decision{Choice: Invalid, Reason: reason, Message: message}
}

// Instance is one run of an operand's templates.
type Instance struct {
	// Suffix of the names of its objects; empty for an operand's only instance.
	Suffix string
	// Pool restricts it to the nodes of one driver pool; empty for all nodes of the operand.
	Pool string
	// NodePool restricts it to the nodes that get this operand from that pool of spec.nodePools; empty for those
	// that get it from the rest of the spec.
	NodePool string
	// Layout restricts it to the nodes whose container runtime has this layout; empty for all.
	Layout string
	// Image and Version of its main container, for status.
	Image, Version string
	// PullSecrets of its pods.
	PullSecrets []string
	// Main is the container that Container configures.
	Main string
	// Container is what the spec says of the main container.
	Container v1.ContainerSpec
	// PluginConfig has the main container read the device plugin's configuration; nil if it has none.
	PluginConfig *PluginConfig
	// InitEnv adds to the environment of init containers, by their names.
	InitEnv map[string][]v1.EnvVar
	// Values are what the operand's templates see as .Values.
	Values any
}

// PluginConfig has an instance read one of the device plugin's configurations, the one that its node
// chooses: render adds NVIDIA's config-manager to its pods.
type PluginConfig struct {
	// ConfigMap holds the configurations, one in each key.
	ConfigMap string
	// Default is the key for nodes that choose none; empty for an empty configuration.
	Default string
	// Image and PullPolicy of config-manager: those of the device plugin, which holds it.
	Image, PullPolicy string
	// Process is the name that the program of the main container is started by, as config-manager finds
	// it among the processes of the pod: its argv[0], to the letter. It gets SIGHUP when the node chooses
	// another configuration.
	Process string
}

// AnchorLabel is the node label that keeps the operand's pod on a node which has lost another label that its DaemonSet
// selects by; empty for an operand whose nodes have no anchor.
func (o *Operand) AnchorLabel() string {
	if o.DaemonSet == "" {
		return ""
	}
	return labels.AnchorPrefix + string(o.Name)
}

// Variant is the kind of the nodes that the instance is for, among those of its operand: a label value, such as
// ubuntu24.04-amd64 of a driver and containerd of a toolkit. Empty for an operand that has one kind.
func (i Instance) Variant() string { return Variant(i.Pool, i.Layout, i.NodePool) }

// Variant is the kind of nodes in a driver pool, or with a layout of the container runtime and in a pool of
// spec.nodePools, empty for none.
func Variant(pool, layout, nodePool string) string {
	if pool != "" || layout == "" {
		return pool
	}
	return nodeinfo.WithSuffix(layout, nodePool)
}

// ServesWorkload tells whether the operand has pods on nodes of this workload.
func (o *Operand) ServesWorkload(w nodeinfo.Workload) bool {
	for _, served := range o.Workloads {
		if served == w {
			return true
		}
	}
	return false
}

// VariesIn tells whether the nodes of this pool get DaemonSets of their own.
func (o *Operand) VariesIn(pool v1.NodePoolSpec) bool { return o.Varies != nil && o.Varies(pool) }

// NodePoolLabel is the node label by which the DaemonSets of a pool select their nodes and the common one leaves
// them out; empty where no pool says anything of the operand, or by the label of the driver pool.
func (o *Operand) NodePoolLabel() string {
	if o.Varies == nil || o.PerPool {
		return ""
	}
	return labels.NodePoolPrefix + string(o.Name)
}
