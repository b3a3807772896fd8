package clusterpolicy

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/observe"
)

var _ = Describe("The driver of NVIDIA's operator", func() {
	var env *testEnv

	// label changes the labels of the node; an empty value removes one.
	label := func(key, value string) {
		node := env.nodes[0]
		if node.Labels[key] = value; value == "" {
			delete(node.Labels, key)
		}
		entry := *env.fleet.Get(node.Name)
		entry.Facts = observe.Facts(node)
		env.fleet.Set(&entry)
	}
	// selected are the terms by which a DaemonSet selects nodes.
	selected := func(ctx context.Context, name string) []corev1.NodeSelectorTerm {
		GinkgoHelper()
		affinity := daemonSet(ctx, name).Spec.Template.Spec.Affinity
		return affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	}

	It("is held until its nodes have an anchor, and keeps nodes whose anchor may be unseen", func(ctx SpecContext) {
		const deploy, anchor = "nvidia.com/gpu.deploy.driver", labels.AnchorPrefix + "driver"
		env = newEnv(migNode("a"))
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{})
		env.settle(ctx)
		ours := selected(ctx, driverName)
		label(deploy, labels.True)
		ds := daemonSet(ctx, driverName)
		ds.Annotations = nil
		Expect(admin.Update(ctx, ds, client.FieldOwner(labels.NVIDIAFieldManager))).To(Succeed())

		env.pass(ctx, statusInterval)
		env.reportStatus(ctx)
		Expect(daemonSet(ctx, driverName).Annotations).NotTo(HaveKey(labels.Digest), "held")
		Expect(operandOf(env.policy(ctx), "driver")).To(And(
			HaveField("State", v1.OperandWaiting), HaveField("Reason", v1.ReasonNotTakenOver),
			HaveField("Message", ContainSubstring("node a ")),
		))

		label(anchor, "ubuntu24.04-amd64")
		env.pass(ctx, statusInterval)
		Expect(selected(ctx, driverName)).To(HaveLen(len(ours)+1), "also nodes without an anchor")
		env.pass(ctx, statusInterval)
		Expect(selected(ctx, driverName)).To(HaveLen(len(ours)+1), "until the DaemonSet controller follows")
		env.settle(ctx)
		Expect(selected(ctx, driverName)).To(Equal(ours))
	})
})
