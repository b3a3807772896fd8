package node_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
)

// upgrading is a spec with automatic driver upgrades, or without.
func upgrading(auto bool) v1.ClusterPolicySpec {
	return v1.ClusterPolicySpec{
		Driver: &v1.DriverSpec{UpgradePolicy: &v1.DriverUpgradePolicySpec{AutoUpgrade: new(auto)}},
	}
}

// publishDriver publishes a Basis with a driver whose template has the digest "current".
func (f *fixture) publishDriver(spec v1.ClusterPolicySpec) {
	next := basis(spec)
	next.Stack = assess.Stack{DaemonSets: map[string]*appsv1.DaemonSet{"drivers": {ObjectMeta: metav1.ObjectMeta{
		Name: "drivers", UID: "drivers", Labels: map[string]string{labels.Operand: driver},
		Annotations: map[string]string{labels.TemplateDigest: "current"},
	}}}}
	f.fleet.Publish(next, f.clock.Now())
}

// ownDriver makes the driver pod one of the DaemonSet, from the template with this digest.
func (f *fixture) ownDriver(ctx context.Context, digest string) {
	GinkgoHelper()
	pod := f.pod(ctx, driver)
	pod.Annotations = map[string]string{labels.TemplateDigest: digest}
	pod.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "drivers", UID: "drivers", Controller: new(true)},
	}
	Expect(f.client.Update(ctx, pod)).To(Succeed())
}

var _ = Describe("A node whose driver the operator installs", func() {
	enabled := HaveKeyWithValue(labels.UpgradeEnabled, labels.True)
	done := HaveKeyWithValue(labels.UpgradeState, "upgrade-done")

	It("has the annotation by which the driver manager evicts no pods, with its labels", func(ctx SpecContext) {
		f := newFixture(ctx)
		f.publish(upgrading(false))
		Expect(f.reconcileAfter(ctx, 0)).To(BeZero())
		Expect(f.takeCalls()).To(Equal([]string{getNode, listPods, patchLabels, patchCondition}))
		Expect(f.node(ctx).Annotations).To(enabled)
		Expect(f.node(ctx).Labels).NotTo(HaveKey(labels.UpgradeState))
	})

	It("is up to date by its label, which it gets in the same patch", func(ctx SpecContext) {
		f := newFixture(ctx)
		f.ownDriver(ctx, "current")
		f.publishDriver(upgrading(true))
		Expect(f.reconcileAfter(ctx, 0)).To(BeZero())
		Expect(f.takeCalls()).To(Equal([]string{getNode, listPods, patchLabels, patchCondition}))
		Expect(f.node(ctx).Labels).To(done)
		Expect(f.reconcileAfter(ctx, time.Minute)).To(BeZero())
		Expect(f.takeCalls()).To(Equal([]string{getNode, listPods}))
		f.publishDriver(upgrading(false))
		Expect(f.reconcileAfter(ctx, time.Minute)).To(BeZero())
		Expect(f.takeCalls()).To(Equal([]string{getNode, listPods, patchLabels}))
		Expect(f.node(ctx).Labels).NotTo(HaveKey(labels.UpgradeState), "without automatic upgrades")
	})

	DescribeTable("is not up to date", func(ctx SpecContext, change func(context.Context, *fixture)) {
		f := newFixture(ctx)
		f.ownDriver(ctx, "current")
		change(ctx, f)
		f.publishDriver(upgrading(true))
		_, err := f.reconcileAfter(ctx, 0)
		Expect(err).NotTo(HaveOccurred())
		Expect(f.node(ctx).Labels).NotTo(done)
		Expect(f.node(ctx).Annotations).To(enabled)
	},
		Entry("while the driver is outdated", func(ctx context.Context, f *fixture) { f.ownDriver(ctx, "earlier") }),
		Entry("while the driver starts", func(ctx context.Context, f *fixture) { f.setPod(ctx, driver, starts) }),
		Entry("before the toolkit is ready, whose labels follow",
			func(ctx context.Context, f *fixture) { f.setPod(ctx, toolkit, starts) }),
		Entry("during an upgrade", func(ctx context.Context, f *fixture) {
			f.update(ctx, func(node *corev1.Node) { node.Labels[labels.UpgradeState] = "upgrade-required" })
		}),
		Entry("with the record of an upgrade", func(ctx context.Context, f *fixture) {
			f.update(ctx, func(node *corev1.Node) { node.Annotations = map[string]string{labels.UpgradeRecord: "{}"} })
		}),
	)

	DescribeTable("loses both", func(ctx SpecContext, end func(*fixture)) {
		f := newFixture(ctx)
		f.ownDriver(ctx, "current")
		f.publishDriver(upgrading(true))
		Expect(f.reconcileAfter(ctx, 0)).To(BeZero())
		Expect(f.node(ctx).Labels).To(done)
		end(f)
		_, err := f.reconcileAfter(ctx, time.Minute)
		Expect(err).NotTo(HaveOccurred())
		Expect(f.node(ctx).Labels).NotTo(HaveKey(labels.UpgradeState))
		Expect(f.node(ctx).Annotations).NotTo(HaveKey(labels.UpgradeEnabled))
	},
		Entry("if the driver is not the operator's any more", func(f *fixture) {
			f.publish(v1.ClusterPolicySpec{Driver: &v1.DriverSpec{Enabled: new(false)}})
		}),
		Entry("if the policy is deleted", func(f *fixture) { f.fleet.Publish(fleet.Basis{}, f.clock.Now()) }),
	)

	It("is left to the upgrade controller while it has a record", func(ctx SpecContext) {
		f := newReady(ctx)
		f.update(ctx, func(node *corev1.Node) {
			node.Labels[labels.UpgradeState], node.Spec.Unschedulable = "upgrade-done", true
			node.Annotations[labels.UpgradeRecord] = "{}"
		})
		f.fleet.Publish(fleet.Basis{}, f.clock.Now())
		_, err := f.reconcileAfter(ctx, time.Minute)
		Expect(err).NotTo(HaveOccurred())
		Expect(f.node(ctx).Labels).To(done)
		Expect(f.node(ctx).Annotations).To(HaveKey(labels.UpgradeRecord))
		Expect(f.node(ctx).Spec.Unschedulable).To(BeTrue())
	})
})
