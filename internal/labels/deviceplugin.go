package labels

const (
	// DevicePluginConfig is the node label that chooses one of the device plugin's configurations: a key
	// of the ConfigMap that spec.devicePlugin.config names. Written by users, read by config-manager.
	DevicePluginConfig = "nvidia.com/device-plugin.config"
	// MPSRoot is the default of spec.devicePlugin.mps.root: where the daemon of the Multi-Process Service
	// keeps its pipes, logs and shared memory, and the device plugin finds them.
	MPSRoot = "/run/nvidia/mps"
)
