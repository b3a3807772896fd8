package v1

// DeadlinesSpec tells for how long a node may be on its way to a stage before that counts as a failure: the
// node is degraded then, with what holds it up, and an Event tells of it once. Nothing else follows, and the
// node becomes ready whenever it does. A stage begins when the one below is reached, and not before the node
// is not ready. 0s is no deadline. A node that its label pauses has none.
type DeadlinesSpec struct {
	// Discovered is for a node whose kubelet has reported that it is not ready. Default 10m.
	// +optional
	Discovered Deadline `json:"discovered,omitempty"`
	// Driver is for the driver, whose modules may have to be built. Default 30m.
	// +optional
	Driver Deadline `json:"driver,omitempty"`
	// Toolkit is for the container toolkit, and for the proof that the driver works. Default 10m.
	// +optional
	Toolkit Deadline `json:"toolkit,omitempty"`
	// DevicePlugin is for the device plugin. Default 10m.
	// +optional
	DevicePlugin Deadline `json:"devicePlugin,omitempty"`
	// Allocatable is for GPUs that can be allocated, from when the device plugin is ready. Default 5m.
	// +optional
	Allocatable Deadline `json:"allocatable,omitempty"`
	// Validated is for the validator, from when the device plugin is ready. Default 15m.
	// +optional
	Validated Deadline `json:"validated,omitempty"`
	// Other is for each operand that no stage waits for, such as dcgm-exporter, on a node that is ready.
	// Default 15m.
	// +optional
	Other Deadline `json:"other,omitempty"`
}

// Deadline is a time of 1s to 168h, 0s for none, or empty for the default.
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:XValidation:rule="size(self) == 0 || self.matches('^([0-9]{1,6}([.][0-9]{1,6})?(h|m|s|ms))+$') && (duration(self) == duration('0s') || (duration(self) >= duration('1s') && duration(self) <= duration('168h')))",message="must be a time of 1s to 168h, such as 90s or 1h30m, or 0s for no deadline"
type Deadline string
