package v1

// CCMode is the confidential computing mode of a node's GPUs.
// +kubebuilder:validation:Enum="";on;off;devtools;ppcie
type CCMode string

// The modes of confidential computing.
const (
	CCModeOn       CCMode = "on"
	CCModeOff      CCMode = "off"
	CCModeDevTools CCMode = "devtools"
	CCModePPCIe    CCMode = "ppcie"
)

// CCManagerSpec configures the confidential computing manager, which sets the mode of the node label
// nvidia.com/cc.mode. It has no effect without sandboxWorkloads.enabled.
type CCManagerSpec struct {
	// Enabled installs the manager on nodes for virtual machines in the mode kata. Not supported yet. Default false.
	// +optional
	Enabled       *bool `json:"enabled,omitempty"`
	ImageSpec     `json:",inline"`
	ContainerSpec `json:",inline"`
	// DefaultMode is the mode of nodes without the label nvidia.com/cc.mode. Default: nodes keep their mode.
	//
	// It is on, off, devtools (on, with debugging allowed) or ppcie (several GPUs and their links). NVIDIA's manager
	// supports ppcie, but its ClusterPolicy does not.
	// +optional
	DefaultMode CCMode `json:"defaultMode,omitempty"`
}
