package v1

// DiscoveryMode chooses who finds out which nodes have GPUs.
// +kubebuilder:validation:Enum="";auto;builtin;nfd
type DiscoveryMode string

// The modes of node discovery.
const (
	// DiscoveryAuto: the operator's own discovery, but for labels that Node Feature Discovery writes.
	DiscoveryAuto DiscoveryMode = "auto"
	// DiscoveryBuiltin: the operator's own discovery on every node.
	DiscoveryBuiltin DiscoveryMode = "builtin"
	// DiscoveryNFD: Node Feature Discovery, which somebody else installs.
	DiscoveryNFD DiscoveryMode = "nfd"
)

// NodeDiscoverySpec configures how the operator learns which nodes have GPUs, and which kernel and
// operating system they run.
type NodeDiscoverySpec struct {
	// Mode: auto runs the operator's own discovery on every Linux node, which leaves to Node Feature
	// Discovery each label that this writes; builtin runs it and never yields; nfd relies on Node
	// Feature Discovery alone. Labels that are there stay when the mode changes. The own discovery needs the
	// admission policy gpu-operator-node-discovery of config/admission, which bounds what it writes on nodes:
	// without it auto is off until it is applied, and builtin is refused. Default auto.
	// +optional
	Mode DiscoveryMode `json:"mode,omitempty"`
	// Resources of the discovery pods.
	// +optional
	Resources     *ResourceRequirements `json:"resources,omitempty"`
	PlacementSpec `json:",inline"`
}
