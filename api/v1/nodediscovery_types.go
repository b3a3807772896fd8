package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// DiscoveryMode selects what detects the GPU nodes.
// +kubebuilder:validation:Enum="";auto;builtin;nfd
type DiscoveryMode string

// The modes of node discovery.
const (
	// DiscoveryAuto runs the operator's own discovery, except for labels that Node Feature Discovery writes.
	DiscoveryAuto DiscoveryMode = "auto"
	// DiscoveryBuiltin runs the operator's own discovery on every node.
	DiscoveryBuiltin DiscoveryMode = "builtin"
	// DiscoveryNFD relies on Node Feature Discovery, which the operator does not install.
	DiscoveryNFD DiscoveryMode = "nfd"
)

// NodeDiscoverySpec configures how GPU nodes, their kernel and their operating system are detected.
type NodeDiscoverySpec struct {
	// Mode is auto (default), builtin or nfd (Node Feature Discovery only).
	//
	// auto runs the operator's own discovery on every Linux node and leaves each label that Node Feature Discovery writes
	// to it. builtin runs the own discovery and never yields. nfd relies on Node Feature Discovery alone. Existing labels
	// stay when the mode changes. The own discovery needs the admission policy gpu-operator-node-agents of
	// config/admission, which limits what it writes to nodes: without that policy, auto is off until it is applied, and
	// builtin is refused.
	// +optional
	Mode DiscoveryMode `json:"mode,omitempty"`
	// GracePeriod is how long operands stay on a node whose labels no longer show a GPU: from 1s to 168h. Default 10m.
	//
	// They stay longer while the kubelet advertises GPUs, while the node has no discovery labels at all, and while pods
	// use its GPUs.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(h|m|s|ms))+$') && duration(self) >= duration('1s') && duration(self) <= duration('168h')",message="must be a duration from 1s to 168h, such as 10m"
	GracePeriod *metav1.Duration `json:"gracePeriod,omitempty"`
	// Resources of the discovery pods.
	// +optional
	Resources     *ResourceRequirements `json:"resources,omitempty"`
	PlacementSpec `json:",inline"`
}
