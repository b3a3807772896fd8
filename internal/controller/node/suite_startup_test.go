package node_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// startup returns a spec with a start-up taint that is added again to failed nodes.
func startup() v1.ClusterPolicySpec {
	return v1.ClusterPolicySpec{NodeStartup: &v1.NodeStartupSpec{
		Taints: []v1.StartupTaint{{Key: notReady.Key, Effect: notReady.Effect}}, OnFailure: v1.OnFailureTaint,
	}}
}

// team is another writer's taint.
var team = corev1.Taint{Key: "example.com/team", Value: "a", Effect: corev1.TaintEffectNoSchedule}

func tainted(node *corev1.Node) { node.Spec.Taints = []corev1.Taint{team, notReady} }

// newFailedForGood returns a fixture whose node has failed for so long that its start-up taint was added again.
func newFailedForGood(ctx context.Context) *fixture {
	GinkgoHelper()
	f := newFixture(ctx, func(node *corev1.Node) { node.Spec.Taints = []corev1.Taint{team} })
	f.publish(startup())
	f.setPod(ctx, driver, crashes)
	for range 2 {
		_, err := f.reconcileAfter(ctx, 2*time.Minute)
		Expect(err).NotTo(HaveOccurred())
	}
	Expect(f.node(ctx).Spec.Taints).To(ConsistOf(team, notReady))
	return f
}

var _ = Describe("A start-up taint", func() {
	It("is removed once GPUs can be used, and the node is ready after that", func(ctx SpecContext) {
		f := newFixture(ctx, tainted)
		f.publish(startup())
		f.setPod(ctx, driver, starts)
		_, err := f.reconcileAfter(ctx, 0)
		Expect(err).NotTo(HaveOccurred())
		Expect(f.takeCalls()).To(Equal([]string{getNode, listPods, patchLabels}))
		f.setPod(ctx, driver, ready(f.clock.Now()))
		_, err = f.reconcileAfter(ctx, time.Second)
		Expect(err).NotTo(HaveOccurred())
		Expect(f.takeCalls()).To(Equal([]string{getNode, listPods, patchTaints}))
		Expect(f.node(ctx).Spec.Taints).To(ConsistOf(team))
		Expect(f.reconcileAfter(ctx, 0)).To(BeZero(), "the event of the write")
		Expect(f.takeCalls()).To(Equal([]string{getNode, listPods, patchCondition}))
		Expect(f.reported(ctx)).To(Equal("True GPUReady"))
	})

	It("is added again 2 minutes after a failure, and removed when that ends", func(ctx SpecContext) {
		f := newFailedForGood(ctx)
		Expect(f.node(ctx).Annotations).
			To(HaveKeyWithValue(labels.StartupTaints, "nvidia.com/gpu-operator.not-ready:NoSchedule"))
		f.setPod(ctx, driver, ready(f.clock.Now()))
		_, err := f.reconcileAfter(ctx, time.Second)
		Expect(err).NotTo(HaveOccurred())
		Expect(f.node(ctx).Spec.Taints).To(ConsistOf(team))
		Expect(f.node(ctx).Annotations).NotTo(HaveKey(labels.StartupTaints))
		Expect(f.reconcileAfter(ctx, time.Second)).To(BeZero())
		Expect(f.reported(ctx)).To(Equal("True GPUReady"))
	})

	It("is added again after 2 minutes, not before", func(ctx SpecContext) {
		f := newFixture(ctx)
		f.publish(startup())
		f.setPod(ctx, driver, crashes)
		Expect(f.reconcileAfter(ctx, 0)).To(Equal(2 * time.Minute))
		f.takeCalls()
		Expect(f.reconcileAfter(ctx, 2*time.Minute-time.Second)).To(Equal(time.Second))
		Expect(f.takeCalls()).To(Equal([]string{getNode, listPods}))
		_, err := f.reconcileAfter(ctx, time.Second)
		Expect(err).NotTo(HaveOccurred())
		Expect(f.takeCalls()).To(Equal([]string{getNode, listPods, patchTaints}))
	})

	It("whose removal is forbidden is retried after 30 s, and reported", func(ctx SpecContext) {
		f := newFixture(ctx, tainted)
		f.publish(startup())
		f.fail(patchTaints, errForbidden)
		Expect(f.reconcileAfter(ctx, 0)).To(Equal(10*time.Second), "the condition is written after its dwell time")
		Expect(f.takeCalls()).To(Equal([]string{getNode, listPods, patchLabels, patchTaints}))
		Expect(f.entry().WriteError).To(BeEmpty())
		Expect(f.reconcileAfter(ctx, 10*time.Second)).To(Equal(20 * time.Second))
		Expect(f.takeCalls()).To(Equal([]string{getNode, listPods, patchCondition}))
		Expect(f.reported(ctx)).To(Equal("False " + v1.ReasonStartupTaint))
		Expect(f.reconcileAfter(ctx, 20*time.Second)).To(Equal(30 * time.Second))
		Expect(f.takeCalls()).To(Equal([]string{getNode, listPods, patchTaints}))
		f.fail(patchTaints, nil)
		_, err := f.reconcileAfter(ctx, 30*time.Second)
		Expect(err).NotTo(HaveOccurred())
		Expect(f.node(ctx).Spec.Taints).To(ConsistOf(team))
		Expect(f.reconcileAfter(ctx, 0)).To(BeZero())
		Expect(f.reported(ctx)).To(Equal("True GPUReady"))
	})

	DescribeTable(
		"whose write fails once is written a second later",
		func(ctx SpecContext, what string, failure error) {
			f := newFixture(ctx, tainted)
			f.publish(startup())
			all := []string{getNode, listPods, patchLabels, patchTaints}
			f.expectFailure(ctx, what, failure, all)
			_, err := f.reconcileAfter(ctx, time.Second)
			Expect(err).NotTo(HaveOccurred())
			Expect(f.takeCalls()).To(Equal([]string{getNode, listPods, patchTaints}))
			Expect(f.node(ctx).Spec.Taints).To(ConsistOf(team))
		},
		eachFailure(notForbidden(), patchTaints),
	)

	It("is not removed from a list that another writer has just changed", func(ctx SpecContext) {
		f := newFixture(ctx, tainted)
		f.publish(startup())
		other := corev1.Taint{Key: "example.com/maintenance", Effect: corev1.TaintEffectNoExecute}
		f.beforeNext(patchTaints, func(ctx context.Context) error {
			f.update(ctx, func(node *corev1.Node) { node.Spec.Taints = append(node.Spec.Taints, other) })
			return nil
		})
		Expect(f.reconcileAfter(ctx, 0)).To(Equal(time.Second))
		Expect(f.node(ctx).Spec.Taints).To(HaveLen(3))
		_, err := f.reconcileAfter(ctx, time.Second)
		Expect(err).NotTo(HaveOccurred())
		Expect(f.node(ctx).Spec.Taints).To(ConsistOf(team, HaveField("Key", other.Key)))
	})
})
