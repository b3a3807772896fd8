package v1

// DeadlinesSpec is how long a node may take to reach each stage before that counts as a failure. The node is then
// degraded with its present reason, and one Event is emitted. Nothing else happens, and the node can still become
// ready. The time for a stage starts when the stage before it is reached, and not before the node became not ready. 0s
// means no deadline. A node that is paused by its label has no deadline.
type DeadlinesSpec struct {
	// Discovered applies while the node's kubelet reports that it is not ready. Default 10m.
	// +optional
	Discovered Deadline `json:"discovered,omitempty"`
	// Driver applies to the driver, including the build of its modules. Default 30m.
	// +optional
	Driver Deadline `json:"driver,omitempty"`
	// Toolkit applies to the container toolkit and the validation of the driver. Default 10m.
	// +optional
	Toolkit Deadline `json:"toolkit,omitempty"`
	// DevicePlugin applies to the device plugin. Default 10m.
	// +optional
	DevicePlugin Deadline `json:"devicePlugin,omitempty"`
	// Allocatable is how long the GPUs may take to become allocatable once the device plugin is ready. Default 5m.
	// +optional
	Allocatable Deadline `json:"allocatable,omitempty"`
	// Validated is how long the validator may take once the device plugin is ready. Default 15m.
	// +optional
	Validated Deadline `json:"validated,omitempty"`
	// Other applies to auxiliary operands, such as dcgm-exporter, on a ready node. Default 15m.
	// +optional
	Other Deadline `json:"other,omitempty"`
}

// Deadline is a duration from 1s to 168h, 0s for no deadline, or empty for the default.
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:XValidation:rule="size(self) == 0 || self.matches('^([0-9]{1,6}([.][0-9]{1,6})?(h|m|s|ms))+$') && (duration(self) == duration('0s') || (duration(self) >= duration('1s') && duration(self) <= duration('168h')))",message="must be a duration from 1s to 168h, such as 1h30m, or 0s for no deadline"
type Deadline string
