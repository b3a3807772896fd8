package driver

import "github.com/clusterpolicy/gpu-operator/internal/policy/image"

// NVIDIA's published images, at the versions that this release was made for.
var (
	driverDefault = image.Default{
		Name: "driver", Variable: "DRIVER_IMAGE", Field: "driver",
		Repository: "nvcr.io/nvidia", Image: "driver", Version: "595.91.07", PerSystem: true,
	}
	managerDefault = image.Default{
		Name: "driver-manager", Variable: "DRIVER_MANAGER_IMAGE", Field: "driver.manager",
		Repository: "nvcr.io/nvidia/cloud-native", Image: "k8s-driver-manager", Version: "v0.12.0",
	}
	gdsDefault = image.Default{
		Name: "gds", Variable: "GDS_IMAGE", Field: "gds",
		Repository: "nvcr.io/nvidia/cloud-native", Image: "nvidia-fs", Version: "2.29.4", PerSystem: true,
	}
	gdrCopyDefault = image.Default{
		Name: "gdrcopy", Variable: "GDRCOPY_IMAGE", Field: "gdrcopy",
		Repository: "nvcr.io/nvidia/cloud-native", Image: "gdrdrv", Version: "v2.6", PerSystem: true,
	}
)
