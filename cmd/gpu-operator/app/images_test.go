package app

import (
	"testing"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
)

// What NVIDIA's bundle sets, with two mistakes.
func TestOverriddenImages(t *testing.T) {
	g := NewWithT(t)
	catalogue, err := operands.Catalogue()
	g.Expect(err).NotTo(HaveOccurred())
	environment := map[string]string{
		"DRIVER_IMAGE":                "mirror.local/nvidia/driver:580.1",
		"DRIVER_IMAGE-580":            "mirror.local/nvidia/driver:580.2",
		"GFD_IMAGE":                   "mirror.local/nvidia/k8s-device-plugin:v0.19.0",
		"VALIDATOR_IMAGE":             "nvcr.io/nvidia/gpu-operator:v26.7.0",
		"VFIO_MANAGER_IMAGE":          "mirror.local/nvidia/k8s-driver-manager:v0.12.0",
		"DCGM_IMAGE":                  "mirror.local/nvidia/dcgm-exporter:4",
		"MIG_MANAGER_IMAGE":           "k8s-mig-manager",
		"SANDBOX_DEVICE_PLUGIN_IMAGE": "x",
	}
	var lines []string
	log := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
	overrides, ignored := overriddenImages(catalogue, log, func(name string) string { return environment[name] })
	g.Expect(overrides).To(And(HaveLen(2), HaveKey("driver"), HaveKey("gpu-feature-discovery")))
	g.Expect(overrides["driver"].Version).To(Equal("580.1"), "the variables of branches are for mirrors")
	g.Expect(ignored).To(ConsistOf(
		HavePrefix("the operator's variable DCGM_IMAGE is ignored: "),
		HavePrefix("the operator's variable MIG_MANAGER_IMAGE is ignored: "),
		HavePrefix("the operator's variable VALIDATOR_IMAGE is ignored: "),
		HavePrefix("the operator's variables SANDBOX_DEVICE_PLUGIN_IMAGE, VFIO_MANAGER_IMAGE are ignored: ")))
	g.Expect(lines).To(ConsistOf(
		And(ContainSubstring("replaces a default image"), ContainSubstring("DRIVER_IMAGE")),
		And(ContainSubstring("replaces a default image"), ContainSubstring("GFD_IMAGE")),
		And(ContainSubstring("is ignored"), ContainSubstring("DCGM_IMAGE")),
		And(ContainSubstring("is ignored"), ContainSubstring("MIG_MANAGER_IMAGE")),
		And(ContainSubstring("is ignored"), ContainSubstring("VALIDATOR_IMAGE")),
		And(ContainSubstring("is ignored"), ContainSubstring("VFIO_MANAGER_IMAGE")),
	))
}
