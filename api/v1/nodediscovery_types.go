package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	// GracePeriod is how long a GPU node may be without a GPU in its discovery labels before its operands are
	// taken off it: from 1s to 168h. They stay for longer while the kubelet advertises GPUs, while the node has no
	// discovery labels at all, and while pods use its GPUs. Default 10m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(h|m|s|ms))+$') && duration(self) >= duration('1s') && duration(self) <= duration('168h')",message="must be a time from 1s to 168h, such as 10m"
	GracePeriod *metav1.Duration `json:"gracePeriod,omitempty"`
	// Resources of the discovery pods.
	// +optional
	Resources     *ResourceRequirements `json:"resources,omitempty"`
	PlacementSpec `json:",inline"`
}
