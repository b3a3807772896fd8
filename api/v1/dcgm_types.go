package v1

// DCGMSpec configures the stand-alone engine of the Data Center GPU Manager.
type DCGMSpec struct {
	// Enabled installs an engine on port 5555 of each node, which the DCGM exporter then uses, and other
	// clients may: profiling counters have one reader at a time. Default false, as in NVIDIA's chart,
	// for the exporter brings an engine of its own; to NVIDIA's operator an absent field means true.
	// +optional
	Enabled       *bool `json:"enabled,omitempty"`
	ImageSpec     `json:",inline"`
	ContainerSpec `json:",inline"`
	PlacementSpec `json:",inline"`
	// HostPort is deprecated and has no effect: use hostNetwork.
	// +optional
	HostPort int32 `json:"hostPort,omitempty"`
}
