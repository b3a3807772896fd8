package clusterpolicy

import (
	"context"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

var _ = Describe("The first pass with a policy", func() {
	// Nodes are written as soon as the basis is published: with many, other calls wait behind these writes.
	It("looks for objects that have the names of its own before it publishes the basis", func(ctx SpecContext) {
		env := newEnv(gpuNode("a"))
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{})
		var mu sync.Mutex
		var early, late []string
		env.onCall(func(_ context.Context, c call) error {
			mu.Lock()
			defer mu.Unlock()
			switch basis := env.fleet.Basis(); {
			case c.op != "live list Pod":
			case basis == nil || basis.Policy == nil:
				early = append(early, c.String())
			default:
				late = append(late, c.String())
			}
			return nil
		})
		env.pass(ctx, time.Second)
		Expect(early).To(HaveLen(3), "the drivers of any operator, and a list by the name of driver and toolkit")
		Expect(late).To(HaveLen(1), "the drivers of NVIDIA's operator that are taken over")
	})

	It("applies driver and toolkit before the DaemonSets whose pods wait for them", func(ctx SpecContext) {
		env := newEnv(gpuNode("a"))
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{})
		env.pass(ctx, time.Second)
		var applied []string
		for _, c := range env.takeCalls() {
			if c.op == "apply DaemonSet" {
				applied = append(applied, c.name)
			}
		}
		Expect(len(applied)).To(BeNumerically(">", 2))
		Expect(applied[:2]).To(ConsistOf("nvidia-driver-daemonset", "nvidia-container-toolkit-daemonset"))
	})
})
