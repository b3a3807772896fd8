package clusterpolicy

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

var _ = Describe("Driver pools of an earlier installation", func() {
	It("get no DaemonSets, and those of the nodes' own pools are created in one pass", func(ctx SpecContext) {
		labelled := func(name, system, pool string) *corev1.Node {
			node := gpuNode(name)
			node.Labels[labels.DiscoveryOSID], node.Labels[labels.Pool] = system, pool
			return node
		}
		// The names would be others if one node after the other counted for its own pool.
		env := newEnv(labelled("a", "ubuntu", "rocky9-amd64"), labelled("b", "debian", "rhel9-amd64"))
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{})
		env.pass(ctx, 0)
		poolOf := func(name string) string {
			ds := daemonSet(ctx, name)
			Expect(ds).NotTo(BeNil(), name)
			return ds.Spec.Template.Labels[labels.Pool]
		}
		Expect(poolOf(driverName)).To(Equal("debian24.04-amd64"))
		Expect(poolOf(driverName + "-ubuntu24.04-amd64")).To(Equal("ubuntu24.04-amd64"))
		Expect(daemonSet(ctx, driverName+"-rhel9-amd64")).To(BeNil())
		Expect(daemonSet(ctx, driverName+"-rocky9-amd64")).To(BeNil())
	})
})
