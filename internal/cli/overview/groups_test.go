package overview_test

import (
	"testing"

	. "github.com/onsi/gomega"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cli/overview"
)

// Nodes that agree in product and state are one group: what is not ready comes first, then the most nodes.
func TestGroups(t *testing.T) {
	node := func(product string, ready overview.Readiness, stage v1.Stage, reason string, usable int) overview.Node {
		return overview.Node{
			Product: product, Ready: ready, Stage: stage, Reason: reason, GPUs: overview.GPUs{Total: 8, Usable: usable},
		}
	}
	g := NewWithT(t)
	g.Expect(overview.Groups(nil)).To(BeEmpty())
	g.Expect(overview.Groups([]overview.Node{
		node("H100", overview.Ready, "Validated", "", 8), node("H100", overview.NotReady, "Driver", "Starting", 0),
		node("A100", overview.Ready, "Validated", "", 8), node("A100", overview.Ready, "Validated", "", 7),
		node("H100", overview.NotReady, "Driver", "CrashLoopBackOff", 0), node("", overview.Unknown, "", "", 0),
		node("H100", overview.NotReady, "Toolkit", "Starting", 0), node("H100", overview.Excluded, "", "Excluded", 0),
	})).To(Equal([]overview.Group{
		{
			Product: "H100", Ready: "False", Stage: "Driver", Reason: "CrashLoopBackOff", Nodes: 1,
			GPUs: overview.GPUs{Total: 8},
		},
		{Product: "H100", Ready: "False", Stage: "Driver", Reason: "Starting", Nodes: 1, GPUs: overview.GPUs{Total: 8}},
		{Product: "H100", Ready: "False", Stage: "Toolkit", Reason: "Starting", Nodes: 1, GPUs: overview.GPUs{Total: 8}},
		{Ready: "Unknown", Nodes: 1, GPUs: overview.GPUs{Total: 8}},
		{Product: "A100", Ready: "True", Stage: "Validated", Nodes: 2, GPUs: overview.GPUs{Total: 16, Usable: 15}},
		{Product: "H100", Ready: "True", Stage: "Validated", Nodes: 1, GPUs: overview.GPUs{Total: 8, Usable: 8}},
		{Product: "H100", Ready: "Excluded", Reason: "Excluded", Nodes: 1, GPUs: overview.GPUs{Total: 8}},
	}))
}
