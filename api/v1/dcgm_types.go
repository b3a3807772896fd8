package v1

// DCGMSpec configures the standalone engine of the Data Center GPU Manager.
type DCGMSpec struct {
	// Enabled installs a DCGM engine on port 5555 of each node, which the DCGM exporter then uses. Default false.
	//
	// Other clients can use it, too: only one reader at a time can read profiling counters. The default is that of
	// NVIDIA's chart, because the exporter contains an engine of its own. NVIDIA's operator treats an absent field as
	// true.
	// +optional
	Enabled       *bool `json:"enabled,omitempty"`
	ImageSpec     `json:",inline"`
	ContainerSpec `json:",inline"`
	PlacementSpec `json:",inline"`
	// HostPort is deprecated and has no effect: use hostNetwork.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	HostPort int32 `json:"hostPort,omitempty"`
}
