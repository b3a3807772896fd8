package upgrade

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
)

// A node whose driver was replaced waits for all pods that were deleted after it, so each of them causes a pass.
func TestPodsThatCauseAPass(t *testing.T) {
	g := NewWithT(t)
	catalogue, err := operands.Catalogue()
	g.Expect(err).NotTo(HaveOccurred())
	concerns := New(Options{Catalogue: catalogue}).concerns()
	for _, name := range []string{
		"driver", "container-toolkit", "operator-validator", "device-plugin", "mps-control-daemon",
		"gpu-feature-discovery", "dcgm", "dcgm-exporter", "mig-manager",
	} {
		g.Expect(concerns(name)).To(BeTrue(), name)
	}
	for _, name := range []string{"node-discovery", "node-status-exporter", "runtime-classes", "", "other"} {
		g.Expect(concerns(name)).To(BeFalse(), name)
	}
}
