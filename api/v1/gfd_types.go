package v1

// GFDSpec configures GPU Feature Discovery. It uses the configuration of devicePlugin.config.
type GFDSpec struct {
	// Enabled installs GPU Feature Discovery. Default true.
	// +optional
	Enabled       *bool `json:"enabled,omitempty"`
	ImageSpec     `json:",inline"`
	ContainerSpec `json:",inline"`
	PlacementSpec `json:",inline"`
}
