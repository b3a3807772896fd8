package node_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
)

var _ = Describe("A node that was ready", func() {
	It("is reported immediately when a pod fails, with one Event, and one when it recovers", func(ctx SpecContext) {
		f := newReady(ctx)
		f.setPod(ctx, driver, crashes)
		_, err := f.reconcileAfter(ctx, time.Minute)
		Expect(err).NotTo(HaveOccurred())
		Expect(f.takeCalls()).To(Equal([]string{getNode, listPods, createEvent, patchCondition}))
		Expect(f.reported(ctx)).To(Equal("False CrashLoopBackOff"))
		for range 3 {
			_, err = f.reconcileAfter(ctx, time.Minute)
			Expect(err).NotTo(HaveOccurred())
		}
		Expect(f.events(ctx)).To(ConsistOf("Warning CrashLoopBackOff"))
		f.takeCalls()
		f.setPod(ctx, driver, ready(f.clock.Now()))
		Expect(f.reconcileAfter(ctx, time.Second)).To(BeZero())
		Expect(f.takeCalls()).To(Equal([]string{getNode, listPods, createEvent, patchCondition}))
		Expect(f.reported(ctx)).To(Equal("True GPUReady"))
		Expect(f.events(ctx)).To(ConsistOf("Warning CrashLoopBackOff", "Normal GPUReady"))
		Expect(f.reconcileAfter(ctx, time.Minute)).To(BeZero())
		Expect(f.takeCalls()).To(Equal([]string{getNode, listPods}))
	})

	It("has one Event for a failure whose condition is written at the second attempt", func(ctx SpecContext) {
		f := newReady(ctx)
		f.setPod(ctx, driver, crashes)
		f.fail(patchCondition, errInternal)
		_, err := f.reconcileAfter(ctx, time.Minute)
		Expect(err).To(MatchError(errInternal))
		Expect(f.events(ctx)).To(ConsistOf("Warning CrashLoopBackOff"))
		f.fail(patchCondition, nil)
		_, err = f.reconcileAfter(ctx, time.Second)
		Expect(err).NotTo(HaveOccurred())
		Expect(f.reported(ctx)).To(Equal("False CrashLoopBackOff"))
		Expect(f.events(ctx)).To(ConsistOf("Warning CrashLoopBackOff"))
	})

	It("is reported within a second when nothing is allocatable any more", func(ctx SpecContext) {
		f := newReady(ctx)
		f.updateStatus(ctx, noGPUs)
		Expect(f.reconcileAfter(ctx, time.Minute)).To(Equal(time.Second / 2))
		_, err := f.reconcileAfter(ctx, time.Second/2)
		Expect(err).NotTo(HaveOccurred())
		Expect(f.takeCalls()).To(Equal([]string{getNode, listPods, getNode, listPods, patchCondition}))
		Expect(f.reported(ctx)).To(Equal("False " + v1.ReasonNotAllocatable))
		Expect(f.entry().StatusAssessment().Ready()).To(BeFalse(), "the policy reports the same")
	})

	It("is not written when a pod is replaced within 4 s", func(ctx SpecContext) {
		f := newReady(ctx)
		f.deletePod(ctx, driver)
		Expect(f.reconcileAfter(ctx, time.Minute)).To(Equal(4 * time.Second))
		Expect(f.createPod(ctx, driver, starts)).To(Succeed())
		Expect(f.reconcileAfter(ctx, time.Second)).To(Equal(3 * time.Second))
		Expect(f.entry()).
			To(And(HaveField("Latest.State", readiness.Progressing), HaveField("Report.State", readiness.Ready)))
		f.setPod(ctx, driver, ready(f.clock.Now()))
		Expect(f.reconcileAfter(ctx, 2*time.Second)).To(BeZero())
		Expect(f.takeCalls()).To(Equal([]string{getNode, listPods, getNode, listPods, getNode, listPods}))
	})

	It("is reported when a pod has been missing for 4 s", func(ctx SpecContext) {
		f := newReady(ctx)
		f.deletePod(ctx, driver)
		Expect(f.reconcileAfter(ctx, time.Minute)).To(Equal(4 * time.Second))
		_, err := f.reconcileAfter(ctx, 4*time.Second)
		Expect(err).NotTo(HaveOccurred())
		Expect(f.takeCalls()).To(Equal([]string{getNode, listPods, getNode, listPods, patchCondition}))
		Expect(f.reported(ctx)).To(Equal("False " + v1.ReasonPodMissing))
		Expect(assess.GPUReadyCondition(f.node(ctx)).LastTransitionTime.Time).
			To(BeTemporally("==", f.clock.Now().Add(-4*time.Second)))
	})

	It("is not reported for 10 s when it fails again within a minute", func(ctx SpecContext) {
		f := newReady(ctx)
		f.setPod(ctx, driver, crashes)
		_, err := f.reconcileAfter(ctx, time.Minute)
		Expect(err).NotTo(HaveOccurred())
		f.setPod(ctx, driver, ready(f.clock.Now()))
		Expect(f.reconcileAfter(ctx, time.Second)).To(BeZero())
		f.takeCalls()
		f.setPod(ctx, driver, crashes)
		Expect(f.reconcileAfter(ctx, 59*time.Second)).To(Equal(10 * time.Second))
		Expect(f.takeCalls()).To(Equal([]string{getNode, listPods}))
		_, err = f.reconcileAfter(ctx, 10*time.Second)
		Expect(err).NotTo(HaveOccurred())
		Expect(f.takeCalls()).To(Equal([]string{getNode, listPods, createEvent, patchCondition}))
		Expect(f.reported(ctx)).To(Equal("False CrashLoopBackOff"))
	})

	It("keeps the conditions of other writers, also one that is added during its own write", func(ctx SpecContext) {
		f := newReady(ctx)
		f.setPod(ctx, driver, crashes)
		f.beforeNext(patchCondition, func(ctx context.Context) error {
			f.updateStatus(ctx, func(status *corev1.NodeStatus) {
				status.Conditions = append(
					status.Conditions,
					corev1.NodeCondition{
						Type:              corev1.NodeDiskPressure,
						Status:            corev1.ConditionTrue,
						LastHeartbeatTime: metav1.Now(),
					},
				)
			})
			return nil
		})
		_, err := f.reconcileAfter(ctx, time.Minute)
		Expect(err).NotTo(HaveOccurred())
		Expect(f.node(ctx).Status.Conditions).To(ConsistOf(
			And(HaveField("Type", corev1.NodeReady), HaveField("Reason", "KubeletReady")),
			And(HaveField("Type", corev1.NodeDiskPressure), HaveField("Status", corev1.ConditionTrue)),
			And(HaveField("Type", corev1.NodeConditionType("nvidia.com/GPUReady")), HaveField("Reason", "CrashLoopBackOff")),
		))
	})

	It("is not written again if another operator process has written the condition", func(ctx SpecContext) {
		f := newReady(ctx)
		f.fleet.Delete(f.name)
		Expect(f.reconcileAfter(ctx, time.Hour)).To(BeZero())
		Expect(f.takeCalls()).To(Equal([]string{getNode, listPods}))
		Expect(f.entry().Latest.Since).
			To(BeTemporally("==", f.clock.Now().Add(-time.Hour)), "the time comes from the condition")
	})
})
