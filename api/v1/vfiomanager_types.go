package v1

// VFIOManagerSpec configures the VFIO manager, which binds GPUs to vfio-pci for virtual machines. It has no effect
// without sandboxWorkloads.enabled.
type VFIOManagerSpec struct {
	// Enabled installs the VFIO manager on nodes for vm-passthrough. Not supported yet. Default false.
	// +optional
	Enabled       *bool `json:"enabled,omitempty"`
	ImageSpec     `json:",inline"`
	ContainerSpec `json:",inline"`
	// DriverManager configures the init container that unloads a driver.
	// +optional
	DriverManager *DriverManagerSpec `json:"driverManager,omitempty"`
}
