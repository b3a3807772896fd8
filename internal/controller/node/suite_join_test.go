package node_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

var _ = Describe("A node that joins", func() {
	It("has an entry with its facts before there is a Basis", func(ctx SpecContext) {
		f := newFixture(ctx)
		Expect(f.reconcileAfter(ctx, 0)).To(BeZero())
		Expect(f.takeCalls()).To(Equal([]string{getNode}))
		Expect(f.entry()).
			To(And(HaveField("Facts.HasGPU", true), HaveField("BasisVersion", BeZero()), HaveField("Latest", BeZero())))
	})

	It("has its labels in one patch and its condition in another, by one assessment", func(ctx SpecContext) {
		f := newFixture(ctx)
		f.publish(v1.ClusterPolicySpec{})
		Expect(f.reconcileAfter(ctx, 0)).To(BeZero())
		Expect(f.takeCalls()).To(Equal([]string{getNode, listPods, patchLabels, patchCondition}))
		Expect(f.node(ctx).Labels).To(And(
			HaveKeyWithValue(labels.GPUPresent, labels.True), HaveKeyWithValue(labels.DeployPrefix+driver, labels.True),
			HaveKeyWithValue(labels.Pool, "ubuntu24.04-amd64"), HaveKeyWithValue(labels.Layout, "containerd"),
			HaveKeyWithValue(labels.DiscoveryOSID, "ubuntu"),
		))
		Expect(f.reported(ctx)).To(Equal("True GPUReady"))
		Expect(f.entry()).To(And(
			HaveField("BasisVersion", uint64(1)),
			HaveField("Facts.Pool", "ubuntu24.04-amd64"),
			HaveField("Latest.State", readiness.Ready),
		))
		Expect(f.events(ctx)).To(BeEmpty())
	})

	It("has the labels of operands after the toolkit once that is ready, and keeps them", func(ctx SpecContext) {
		const after = labels.DeployPrefix + "device-plugin"
		f := newFixture(ctx)
		f.publish(v1.ClusterPolicySpec{})
		f.setPod(ctx, toolkit, starts)
		Expect(f.reconcileAfter(ctx, 0)).To(Equal(10 * time.Second))
		Expect(f.node(ctx).Labels).To(And(HaveKeyWithValue(labels.DeployPrefix+toolkit, labels.True), Not(HaveKey(after))))
		f.setPod(ctx, toolkit, ready(f.clock.Now()))
		Expect(f.reconcileAfter(ctx, time.Second)).To(BeZero())
		Expect(f.node(ctx).Labels).To(HaveKeyWithValue(after, labels.True))
		Expect(f.takeCalls()).
			To(Equal([]string{getNode, listPods, patchLabels, getNode, listPods, patchLabels, patchCondition}))
		f.setPod(ctx, toolkit, starts)
		_, err := f.reconcileAfter(ctx, time.Second)
		Expect(err).NotTo(HaveOccurred())
		Expect(f.node(ctx).Labels).To(HaveKeyWithValue(after, labels.True))
	})

	It("has a record of its stage together with the condition, and none once it is ready", func(ctx SpecContext) {
		f := newFixture(ctx)
		f.publish(v1.ClusterPolicySpec{})
		f.setPod(ctx, driver, crashes)
		_, err := f.reconcileAfter(ctx, 0)
		Expect(err).NotTo(HaveOccurred())
		Expect(f.node(ctx).Annotations).To(HaveKeyWithValue(labels.ReportRecord, `{"stage":"Driver","operand":"driver"}`))
		f.takeCalls()
		f.setPod(ctx, driver, ready(f.clock.Now()))
		_, err = f.reconcileAfter(ctx, time.Minute)
		Expect(err).NotTo(HaveOccurred())
		Expect(f.reported(ctx)).To(Equal("True GPUReady"))
		Expect(f.node(ctx).Annotations).NotTo(HaveKey(labels.ReportRecord))
		Expect(f.takeCalls()).To(Equal([]string{getNode, listPods, createEvent, patchCondition}))
	})

	It("has no write while nothing changes", func(ctx SpecContext) {
		f := newReady(ctx)
		version := f.node(ctx).ResourceVersion
		for range 3 {
			Expect(f.reconcileAfter(ctx, time.Minute)).To(BeZero())
		}
		Expect(f.takeCalls()).To(Equal([]string{getNode, listPods, getNode, listPods, getNode, listPods}))
		Expect(f.node(ctx).ResourceVersion).To(Equal(version))
	})

	It("has no condition before the dwell time of a stage, and True immediately", func(ctx SpecContext) {
		f := newFixture(ctx)
		f.publish(v1.ClusterPolicySpec{})
		f.setPod(ctx, driver, starts)
		Expect(f.reconcileAfter(ctx, 0)).To(Equal(10 * time.Second))
		Expect(f.entry().StatusAssessment()).To(And(HaveField("State", readiness.Progressing),
			HaveField("Stage", v1.StageDriver)))
		f.setPod(ctx, driver, ready(f.clock.Now()))
		f.setPod(ctx, toolkit, starts)
		Expect(f.reconcileAfter(ctx, 9*time.Second)).To(Equal(10*time.Second), "another stage starts")
		Expect(f.reported(ctx)).To(BeEmpty())
		f.setPod(ctx, toolkit, ready(f.clock.Now()))
		Expect(f.reconcileAfter(ctx, 9*time.Second)).To(BeZero())
		Expect(f.reported(ctx)).To(Equal("True GPUReady"))
		Expect(f.takeCalls()).
			To(Equal([]string{getNode, listPods, patchLabels, getNode, listPods, getNode, listPods, patchCondition}))
	})

	It("has its stage written after its dwell time", func(ctx SpecContext) {
		f := newFixture(ctx)
		f.publish(v1.ClusterPolicySpec{})
		f.setPod(ctx, driver, starts)
		Expect(f.reconcileAfter(ctx, 0)).To(Equal(10 * time.Second))
		Expect(f.reconcileAfter(ctx, 9*time.Second)).To(Equal(time.Second))
		Expect(f.reported(ctx)).To(BeEmpty())
		_, err := f.reconcileAfter(ctx, time.Second)
		Expect(err).NotTo(HaveOccurred())
		condition := assess.GPUReadyCondition(f.node(ctx))
		Expect(condition).To(And(
			HaveField("Status", corev1.ConditionFalse),
			HaveField("Reason", v1.ReasonStarting),
			HaveField("Message", ContainSubstring("stage Driver")),
		))
		Expect(condition.LastTransitionTime.Time).
			To(BeTemporally("==", f.clock.Now().Add(-10*time.Second)), "since it became not ready")
		Expect(condition.LastHeartbeatTime.Time).To(BeTemporally("==", f.clock.Now()))
		f.setPod(ctx, driver, ready(f.clock.Now()))
		Expect(f.reconcileAfter(ctx, time.Second)).To(BeZero())
		Expect(assess.GPUReadyCondition(f.node(ctx)).LastTransitionTime.Time).To(BeTemporally("==", f.clock.Now()))
	})

	It("keeps the deploy labels that exclude an operand", func(ctx SpecContext) {
		f := newFixture(ctx, func(node *corev1.Node) { node.Labels[labels.DeployPrefix+driver] = labels.DeployPreInstalled })
		f.publish(v1.ClusterPolicySpec{})
		f.deletePod(ctx, driver)
		Expect(f.reconcileAfter(ctx, 0)).To(BeZero())
		Expect(f.node(ctx).Labels).To(And(
			HaveKeyWithValue(labels.DeployPrefix+driver, labels.DeployPreInstalled),
			HaveKeyWithValue(labels.DeployPrefix+toolkit, labels.True),
		))
		Expect(f.reported(ctx)).To(Equal("True GPUReady"), "the host has a driver")
	})

	It("has no operands if it is excluded", func(ctx SpecContext) {
		f := newReady(ctx)
		f.update(ctx, func(node *corev1.Node) { node.Labels[labels.DeployOperands] = labels.False })
		Expect(f.reconcileAfter(ctx, time.Minute)).To(BeZero())
		Expect(f.takeCalls()).
			To(Equal([]string{getNode, listPods, patchLabels, createEvent, patchCondition}),
				"immediately, as a user has decided that")
		Expect(f.reported(ctx)).To(Equal("False Excluded"))
		Expect(f.node(ctx).Labels).To(And(
			HaveKeyWithValue(labels.DeployOperands, labels.False),
			HaveKeyWithValue(labels.GPUPresent, labels.True),
			Not(HaveKey(labels.DeployPrefix+driver)),
		))
		Expect(f.entry().Latest.Excluded).To(BeTrue())
		Expect(f.events(ctx)).To(ConsistOf(HavePrefix("Warning Excluded")))
		f.update(ctx, func(node *corev1.Node) { delete(node.Labels, labels.DeployOperands) })
		Expect(f.reconcileAfter(ctx, time.Minute)).To(BeZero())
		Expect(f.reported(ctx)).To(Equal("True GPUReady"))
		Expect(f.node(ctx).Labels).To(HaveKeyWithValue(labels.DeployPrefix+driver, labels.True))
		Expect(f.events(ctx)).To(ConsistOf(HavePrefix("Warning Excluded"), HavePrefix("Normal GPUReady")))
	})

	It("has the state of node discovery in its entry before it is discovered", func(ctx SpecContext) {
		f := newFixture(ctx, func(node *corev1.Node) { node.Labels = nil })
		f.publish(v1.ClusterPolicySpec{})
		f.setPod(ctx, discovery, crashes)
		Expect(f.reconcileAfter(ctx, 0)).To(BeZero())
		Expect(f.takeCalls()).To(Equal([]string{getNode, listPods}))
		Expect(f.entry().Discovering).To(HaveKeyWithValue(operand.Name(discovery), HaveField("State", readiness.Failed)))
	})

	It("is ignored if discovery has found no GPU", func(ctx SpecContext) {
		f := newFixture(ctx, func(node *corev1.Node) { delete(node.Labels, labels.DiscoveryPCIPresent) })
		f.publish(v1.ClusterPolicySpec{})
		Expect(f.reconcileAfter(ctx, 0)).To(BeZero())
		Expect(f.takeCalls()).To(Equal([]string{getNode}))
		Expect(f.entry()).To(And(HaveField("BasisVersion", uint64(1)), HaveField("Latest", BeZero())))
	})

	It("is assessed and not written while the policy is paused", func(ctx SpecContext) {
		f := newFixture(ctx)
		f.publish(v1.ClusterPolicySpec{Paused: new(true)})
		f.setPod(ctx, driver, crashes)
		_, err := f.reconcileAfter(ctx, 0)
		Expect(err).NotTo(HaveOccurred())
		Expect(f.takeCalls()).To(Equal([]string{getNode, listPods}))
		Expect(f.entry().StatusAssessment().State).To(Equal(readiness.Failed))
		f.setPod(ctx, driver, ready(f.clock.Now()))
		f.publish(v1.ClusterPolicySpec{})
		Expect(f.reconcileAfter(ctx, time.Second)).To(BeZero())
		Expect(f.reported(ctx)).To(Equal("True GPUReady"))
	})
})
