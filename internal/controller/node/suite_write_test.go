package node_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
)

var _ = Describe("A write to a node", func() {
	It("that fails is not repeated by events within its back-off, which doubles up to 30 s", func(ctx SpecContext) {
		f := newFixture(ctx)
		f.publish(v1.ClusterPolicySpec{})
		f.fail(patchLabels, errInternal)
		_, err := f.reconcileAfter(ctx, 0)
		Expect(err).To(MatchError(errInternal))
		for _, seconds := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
			backoff := seconds * time.Second
			f.takeCalls()
			f.setPod(ctx, driver, starts)
			_, err := f.reconcileAfter(ctx, 0)
			Expect(err).NotTo(HaveOccurred())
			Expect(f.entry().Latest.State).To(Equal(readiness.Progressing), "an event is still assessed")
			f.setPod(ctx, driver, ready(f.clock.Now()))
			Expect(f.reconcileAfter(ctx, backoff-time.Millisecond)).To(Equal(time.Millisecond))
			Expect(f.takeCalls()).To(Equal([]string{getNode, listPods, getNode, listPods}))
			Expect(f.entry().WriteError).To(ContainSubstring("etcd is full"))
			_, err = f.reconcileAfter(ctx, time.Millisecond)
			Expect(err).To(MatchError(errInternal))
			Expect(f.takeCalls()).To(Equal([]string{getNode, listPods, patchLabels}))
		}
		f.fail(patchLabels, nil)
		Expect(f.reconcileAfter(ctx, 30*time.Second)).To(BeZero())
		Expect(f.entry()).To(And(HaveField("WriteError", BeEmpty()), HaveField("Writes.Backoff", BeZero())))
		Expect(f.reported(ctx)).To(Equal("True GPUReady"))
		f.updateStatus(ctx, noGPUs)
		f.fail(patchCondition, errInternal)
		Expect(f.reconcileAfter(ctx, time.Hour)).To(Equal(time.Second / 2))
		_, err = f.reconcileAfter(ctx, time.Second/2)
		Expect(err).To(MatchError(errInternal))
		Expect(f.reconcileAfter(ctx, 0)).To(Equal(time.Second), "the back-off starts again")
	})

	DescribeTable("ends at its deadline", func(ctx SpecContext, what string) {
		f := newFixture(ctx)
		f.publish(v1.ClusterPolicySpec{})
		f.reconciler.Timing.Deadline = 20 * time.Second
		f.beforeNext(what, func(ctx context.Context) error {
			deadline, limited := ctx.Deadline()
			Expect(limited).To(BeTrue())
			Expect(deadline).To(BeTemporally("~", time.Now().Add(20*time.Second), 10*time.Second))
			return context.DeadlineExceeded
		})
		_, err := f.reconcileAfter(ctx, 0)
		Expect(err).To(MatchError(context.DeadlineExceeded))
		Expect(f.entry().WriteError).To(ContainSubstring("deadline exceeded"))
		Expect(f.reconcileAfter(ctx, time.Second)).To(BeZero())
		Expect(f.reported(ctx)).To(Equal("True GPUReady"))
	}, Entry("labels", patchLabels), Entry("condition", patchCondition))

	It("yields to another writer, whose value stays", func(ctx SpecContext) {
		f := newFixture(ctx)
		f.publish(v1.ClusterPolicySpec{})
		f.beforeNext(patchLabels, func(ctx context.Context) error {
			f.update(ctx, func(node *corev1.Node) { node.Labels[labels.DeployPrefix+toolkit] = labels.False })
			return nil
		})
		Expect(f.reconcileAfter(ctx, 0)).To(Equal(time.Second), "the API server answers with a conflict")
		Expect(f.node(ctx).Labels).NotTo(HaveKey(labels.Pool))
		Expect(f.entry()).To(And(HaveField("WriteError", BeEmpty()), HaveField("BasisVersion", uint64(1))))
		f.takeCalls()
		Expect(f.reconcileAfter(ctx, 500*time.Millisecond)).To(Equal(500*time.Millisecond), "other writers may still be busy")
		Expect(f.takeCalls()).To(Equal([]string{getNode, listPods}))
		_, err := f.reconcileAfter(ctx, 500*time.Millisecond)
		Expect(err).NotTo(HaveOccurred())
		Expect(f.node(ctx).Labels).To(And(
			HaveKeyWithValue(labels.DeployPrefix+toolkit, labels.False),
			HaveKeyWithValue(labels.DeployPrefix+driver, labels.True),
		))
	})

	It("by another process does not conflict with the condition", func(ctx SpecContext) {
		f := newReady(ctx)
		f.setPod(ctx, driver, crashes)
		f.beforeNext(patchCondition, func(ctx context.Context) error {
			f.update(ctx, func(node *corev1.Node) { node.Labels["example.com/rack"] = "7" })
			return nil
		})
		_, err := f.reconcileAfter(ctx, time.Minute)
		Expect(err).NotTo(HaveOccurred())
		Expect(f.reported(ctx)).To(Equal("False CrashLoopBackOff"))
		Expect(f.node(ctx).Labels).To(HaveKeyWithValue("example.com/rack", "7"))
	})

	It("is waited for until the cache shows it", func(ctx SpecContext) {
		f := newFixture(ctx)
		f.publish(v1.ClusterPolicySpec{})
		behind := f.node(ctx)
		Expect(f.reconcileAfter(ctx, 0)).To(BeZero())
		entry := f.entry()
		f.serveStale(behind)
		f.takeCalls()
		Expect(f.reconcileAfter(ctx, time.Second)).To(Equal(time.Second))
		Expect(f.takeCalls()).To(Equal([]string{getNode}))
		Expect(f.entry()).To(BeIdenticalTo(entry))
		f.serveStale(nil)
		Expect(f.reconcileAfter(ctx, time.Second)).To(BeZero())
		Expect(f.takeCalls()).To(Equal([]string{getNode, listPods}))
		Expect(f.entry().Writes.Version).To(BeEmpty())
	})
})

var _ = Describe("A node that is deleted", func() {
	It("has no entry", func(ctx SpecContext) {
		f := newReady(ctx)
		f.remove(ctx)
		Expect(f.reconcileAfter(ctx, time.Second)).To(BeZero())
		Expect(f.fleet.Names()).To(BeEmpty())
	})

	DescribeTable("during a write is no error, and has no entry", func(ctx SpecContext, what string) {
		f := newFixture(ctx)
		f.publish(v1.ClusterPolicySpec{})
		f.beforeNext(what, func(ctx context.Context) error {
			f.remove(ctx)
			return nil
		})
		Expect(f.reconcileAfter(ctx, 0)).To(BeZero())
		Expect(f.entry().WriteError).To(BeEmpty())
		Expect(f.reconcileAfter(ctx, 0)).To(BeZero(), "its event arrives")
		Expect(f.fleet.Names()).To(BeEmpty())
	}, Entry("its labels", patchLabels), Entry("its condition", patchCondition))

	It("and created again is another node", func(ctx SpecContext) {
		f := newReady(ctx)
		f.remove(ctx)
		Expect(f.reconcileAfter(ctx, time.Second)).To(BeZero())
		Expect(f.client.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f.name}})).To(Succeed())
		Expect(f.reconcileAfter(ctx, time.Second)).To(BeZero())
		Expect(f.entry().Latest).To(BeZero())
	})
})
