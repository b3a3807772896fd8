package v1

// CCMode is the mode of confidential computing of a node's GPUs.
// +kubebuilder:validation:Enum="";on;off;devtools;ppcie
type CCMode string

// The modes of confidential computing.
const (
	CCModeOn       CCMode = "on"
	CCModeOff      CCMode = "off"
	CCModeDevTools CCMode = "devtools"
	CCModePPCIe    CCMode = "ppcie"
)

// CCManagerSpec configures the manager of confidential computing, which sets the mode that the label
// nvidia.com/cc.mode of each node asks for. It has no effect without sandboxWorkloads.enabled.
type CCManagerSpec struct {
	// Enabled installs the manager on nodes for virtual machines, with the mode kata. Default false. Not
	// supported yet.
	// +optional
	Enabled       *bool `json:"enabled,omitempty"`
	ImageSpec     `json:",inline"`
	ContainerSpec `json:",inline"`
	// DefaultMode is the mode of nodes without the label nvidia.com/cc.mode: on, off, devtools (as on, but
	// open to debuggers) or ppcie (several GPUs and their links; NVIDIA's ClusterPolicy does not take it,
	// but its manager does). Default: nodes keep the mode that they have.
	// +optional
	DefaultMode CCMode `json:"defaultMode,omitempty"`
}
