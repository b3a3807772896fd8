package operands_test

import (
	"testing"

	. "github.com/onsi/gomega"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// The default images are those of NVIDIA's chart of the same release, and the variables those of its operator.
func TestImagesAreNVIDIAs(t *testing.T) {
	g := NewWithT(t)
	type defaults struct{ reference, variable string }
	got := map[string]defaults{}
	for _, image := range tabled(t).Images() {
		suffix := ""
		if image.PerSystem {
			suffix = "-os"
		}
		ref, err := image.Resolve(v1.ImageSpec{}, suffix)
		g.Expect(err).NotTo(HaveOccurred())
		got[image.Name] = defaults{ref.Image, image.Variable}
	}
	g.Expect(got).To(Equal(map[string]defaults{
		"driver":                {"nvcr.io/nvidia/driver:595.91.07-os", "DRIVER_IMAGE"},
		"driver-manager":        {"nvcr.io/nvidia/cloud-native/k8s-driver-manager:v0.12.0", "DRIVER_MANAGER_IMAGE"},
		"gds":                   {"nvcr.io/nvidia/cloud-native/nvidia-fs:2.29.4-os", "GDS_IMAGE"},
		"gdrcopy":               {"nvcr.io/nvidia/cloud-native/gdrdrv:v2.6-os", "GDRCOPY_IMAGE"},
		"container-toolkit":     {"nvcr.io/nvidia/k8s/container-toolkit:v1.20.0", "CONTAINER_TOOLKIT_IMAGE"},
		"device-plugin":         {"nvcr.io/nvidia/k8s-device-plugin:v0.20.0", "DEVICE_PLUGIN_IMAGE"},
		"gpu-feature-discovery": {"nvcr.io/nvidia/k8s-device-plugin:v0.20.0", "GFD_IMAGE"},
		"dcgm":                  {"nvcr.io/nvidia/cloud-native/dcgm:4.6.0-1-ubuntu24.04", "DCGM_IMAGE"},
		"dcgm-exporter":         {"nvcr.io/nvidia/k8s/dcgm-exporter:4.6.0-4.8.3-distroless", "DCGM_EXPORTER_IMAGE"},
		"mig-manager":           {"nvcr.io/nvidia/cloud-native/k8s-mig-manager:v0.15.0", "MIG_MANAGER_IMAGE"},
	}))
}
