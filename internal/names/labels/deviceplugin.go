package labels

const (
	// DevicePluginConfig is the node label that chooses one of the device plugin's configurations: a key
	// of the ConfigMap that spec.devicePlugin.config names. Written by users, read by gpu-node configure.
	DevicePluginConfig = "nvidia.com/device-plugin.config"
	// PluginConfig is an annotation of pods of the device plugin, of GPU Feature Discovery and of the MPS control daemon:
	// their configuration from spec.sharing, which they read as a file.
	PluginConfig = "nvidia.com/gpu-operator.plugin-config"
	// PluginConfigRead is an annotation of a Node: the configuration of a ConfigMap that its pods have read, as
	// CONFIGMAP/KEY, and the digest of its content. The word was-down follows if they had not worked before, for a reason
	// of the node's own.
	PluginConfigRead = "nvidia.com/gpu-operator.plugin-config-read"
	// MPSRoot is the default of spec.devicePlugin.mps.root: where the daemon of the Multi-Process Service
	// keeps its pipes, logs and shared memory, and the device plugin finds them.
	MPSRoot = "/run/nvidia/mps"
)
