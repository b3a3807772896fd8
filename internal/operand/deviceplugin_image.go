package operand

import "github.com/clusterpolicy/gpu-operator/internal/image"

// DevicePluginImage is the image of the device plugin, which the daemon of MPS and config-manager run, too.
func DevicePluginImage() image.Default {
	return image.Default{
		Name: "device-plugin", Field: "devicePlugin", Repository: "nvcr.io/nvidia", Image: "k8s-device-plugin", Version: "v0.20.0",
	}
}
