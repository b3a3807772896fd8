package operands_test

import (
	"testing"

	. "github.com/onsi/gomega"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// The default images are those of NVIDIA's chart of the same release.
func TestImagesAreNVIDIAs(t *testing.T) {
	g := NewWithT(t)
	got := map[string]string{}
	for _, image := range tabled(t).Images() {
		suffix := ""
		if image.PerSystem {
			suffix = "-os"
		}
		ref, err := image.Resolve(v1.ImageSpec{}, suffix)
		g.Expect(err).NotTo(HaveOccurred())
		got[image.Name] = ref.Image
	}
	g.Expect(got).To(Equal(map[string]string{
		"driver":                "nvcr.io/nvidia/driver:595.91.07-os",
		"driver-manager":        "nvcr.io/nvidia/cloud-native/k8s-driver-manager:v0.12.0",
		"gds":                   "nvcr.io/nvidia/cloud-native/nvidia-fs:2.29.4-os",
		"gdrcopy":               "nvcr.io/nvidia/cloud-native/gdrdrv:v2.6-os",
		"container-toolkit":     "nvcr.io/nvidia/k8s/container-toolkit:v1.20.0",
		"device-plugin":         "nvcr.io/nvidia/k8s-device-plugin:v0.20.0",
		"gpu-feature-discovery": "nvcr.io/nvidia/k8s-device-plugin:v0.20.0",
		"dcgm":                  "nvcr.io/nvidia/cloud-native/dcgm:4.6.0-1-ubuntu24.04",
		"dcgm-exporter":         "nvcr.io/nvidia/k8s/dcgm-exporter:4.6.0-4.8.3-distroless",
		"mig-manager":           "nvcr.io/nvidia/cloud-native/k8s-mig-manager:v0.15.0",
	}))
}
