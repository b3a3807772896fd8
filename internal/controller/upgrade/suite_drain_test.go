package upgrade_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// draining is relayout with onBusy: drain.
func draining(ctx context.Context, nodes ...string) *fixture {
	GinkgoHelper()
	f := relayout(ctx, nodes...)
	f.spec.MIGManager.Config.OnBusy = v1.MIGBusyDrain
	f.play(ctx)
	return f
}

// applyLayouts plays the MIG manager: it reports an outcome for each requested layout.
func (f *fixture) applyLayouts(ctx context.Context, outcome string) {
	GinkgoHelper()
	for _, name := range f.nodes {
		if _, reported := f.node(ctx, name).Labels[labels.MIGConfigState]; !reported {
			f.update(ctx, name, func(node *corev1.Node) { node.Labels[labels.MIGConfigState] = outcome })
		}
	}
}

// step runs one pass, a second later, by another manager if the last one has crashed.
func (f *fixture) step(ctx context.Context) {
	GinkgoHelper()
	f.play(ctx)
	_, err := f.pass(ctx, f.manager, time.Second)
	if f.crashed {
		f.manager = f.newManager()
		return
	}
	Expect(client.IgnoreNotFound(err)).To(Succeed())
}

// relaid runs passes until all nodes have the layout, and nothing is left of the drains.
func (f *fixture) relaid(ctx context.Context, outcome string) {
	GinkgoHelper()
	for range maxPasses {
		f.step(ctx)
		f.applyLayouts(ctx, outcome)
		if f.isRelaid(ctx) {
			return
		}
	}
	Fail(fmt.Sprintf("not done: %+v", f.node(ctx, "a").ObjectMeta))
}

func (f *fixture) isRelaid(ctx context.Context) bool {
	GinkgoHelper()
	for _, name := range f.nodes {
		node := f.node(ctx, name)
		_, drained := node.Annotations[labels.MIGDrain]
		if node.Labels[labels.MIGConfig] != twoLarge || drained || node.Spec.Unschedulable {
			return false
		}
	}
	return f.hasNoSlots(ctx)
}

func (f *fixture) hasNoSlots(ctx context.Context) bool {
	GinkgoHelper()
	key := client.ObjectKey{Namespace: cluster.OperatorNamespace, Name: labels.UpgradeSlots}
	return apierrors.IsNotFound(f.client.Get(ctx, key, &corev1.ConfigMap{}))
}

// drain is the record of a node; nil for none.
func (f *fixture) drain(ctx context.Context, node string) *upgrade.Drain {
	GinkgoHelper()
	text, recorded := f.node(ctx, node).Annotations[labels.MIGDrain]
	if !recorded {
		return nil
	}
	drain, err := upgrade.DecodeDrain(text)
	Expect(err).NotTo(HaveOccurred())
	return drain
}

// evicting runs passes until the pods of the node are being evicted.
func (f *fixture) evicting(ctx context.Context, node string) {
	GinkgoHelper()
	for range maxPasses {
		if drain := f.drain(ctx, node); drain != nil && drain.State == upgrade.DrainUsers {
			return
		}
		f.step(ctx)
	}
	Fail("no pods are evicted")
}

var _ = Describe("A node that is drained for a MIG layout", func() {
	for _, outcome := range []string{labels.MIGStateSuccess, labels.MIGStateFailed} {
		It("is uncordoned after the outcome "+outcome, func(ctx SpecContext) {
			f := draining(ctx, "a", "b")
			most := 0
			f.afterWrite = func(ctx context.Context, _ string) { most = max(most, f.cordoned(ctx)) }
			f.relaid(ctx, outcome)
			Expect(most).To(Equal(1), "maxParallelUpgrades is 1")
			Expect(f.userPods(ctx)).To(BeEmpty())
			Expect(f.count(evictPod)).To(Equal(2))
			f.takeWrites()
			f.passes(ctx, time.Minute)
			Expect(f.takeWrites()).To(BeEmpty(), "at rest")
		})
	}

	It("is not cordoned if no pod uses its GPUs", func(ctx SpecContext) {
		f := draining(ctx, "a")
		f.deletePod(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: users, Name: "train-a"}})
		f.relaid(ctx, labels.MIGStateSuccess)
		Expect(f.takeWrites()).To(ConsistOf(createSlots, patchNode, deleteSlots))
	})

	It("is not drained for a first layout that disturbs no pod", func(ctx SpecContext) {
		f := draining(ctx, "a")
		f.update(ctx, "a", func(node *corev1.Node) {
			delete(node.Labels, labels.MIGConfig)
			delete(node.Labels, labels.MIGConfigState)
			delete(node.Annotations, labels.MIGConfigWritten)
		})
		f.spec.MIGManager.Config.Default = new(labels.MIGAllDisabled)
		for range 20 {
			f.step(ctx)
		}
		Expect(f.takeWrites()).To(BeEmpty())
	})

	It("survives a crash at any write, before or after it", func(ctx SpecContext) {
		f := draining(ctx, "a")
		f.relaid(ctx, labels.MIGStateSuccess)
		writes := len(f.takeWrites())
		Expect(writes).To(BeNumerically(">=", 6), "slots, cordon, eviction, request, uncordon, slots")
		for at := 1; at <= writes; at++ {
			for _, after := range []bool{false, true} {
				By(fmt.Sprintf("write %d of %d, made: %t", at, writes, after))
				f := draining(ctx, "a")
				first := f.manager
				f.crashAt, f.crashAfter = at, after
				f.relaid(ctx, labels.MIGStateSuccess)
				Expect(first.crashed).To(BeTrue())
				Expect(f.userPods(ctx)).To(BeEmpty())
			}
		}
	})

	It("keeps the cordon of an administrator", func(ctx SpecContext) {
		f := draining(ctx, "a")
		f.update(ctx, "a", func(node *corev1.Node) { node.Spec.Unschedulable = true })
		f.evicting(ctx, "a")
		Expect(f.drain(ctx, "a").Cordoned).To(BeFalse())
		for range maxPasses {
			f.step(ctx)
			f.applyLayouts(ctx, labels.MIGStateSuccess)
		}
		Expect(f.drain(ctx, "a")).To(BeNil())
		Expect(f.layout(ctx, "a")).To(Equal(twoLarge))
		Expect(f.node(ctx, "a").Spec.Unschedulable).To(BeTrue())
	})

	DescribeTable("is uncordoned without the layout", func(ctx SpecContext, happen func(context.Context, *fixture)) {
		f := draining(ctx, "a")
		f.blocked.Store(true)
		f.evicting(ctx, "a")
		Expect(f.node(ctx, "a").Spec.Unschedulable).To(BeTrue())
		happen(ctx, f)
		for range 5 {
			f.step(ctx)
		}
		Expect(f.node(ctx, "a").Spec.Unschedulable).To(BeFalse())
		Expect(f.layout(ctx, "a")).NotTo(Equal(twoLarge))
		Expect(f.userPods(ctx)).To(ConsistOf("train-a"))
		Expect(f.hasNoSlots(ctx)).To(BeTrue())
	},
		Entry("if onBusy is hold", func(_ context.Context, f *fixture) { f.spec.MIGManager.Config.OnBusy = v1.MIGBusyHold }),
		Entry("if there is no config", func(_ context.Context, f *fixture) { f.spec.MIGManager.Config = nil }),
		Entry("if the layout that it had is wanted", func(_ context.Context, f *fixture) {
			f.spec.MIGManager.Config.Default = new(labels.MIGAllDisabled)
		}),
		Entry("if a person sets another one", func(ctx context.Context, f *fixture) {
			f.update(ctx, "a", func(node *corev1.Node) { node.Labels[labels.MIGConfig] = "all-1g.10gb" })
		}),
		Entry("if it is excluded from upgrades", func(ctx context.Context, f *fixture) {
			f.update(ctx, "a", func(node *corev1.Node) { node.Labels[labels.UpgradeSkip] = labels.True })
		}),
		Entry("if a person uncordons it", func(ctx context.Context, f *fixture) {
			f.update(ctx, "a", func(node *corev1.Node) { node.Spec.Unschedulable = false })
		}),
		Entry("if its eviction takes too long", func(_ context.Context, f *fixture) {
			f.clock.SetTime(f.clock.Now().Add(10 * time.Minute))
		}),
		Entry("if the policy is deleted", func(_ context.Context, f *fixture) { f.deleted = true }),
	)

	It("reports what blocks an eviction once, and is tried again after 10 minutes", func(ctx SpecContext) {
		f := draining(ctx, "a")
		f.blocked.Store(true)
		f.evicting(ctx, "a")
		for range 30 {
			f.step(ctx)
		}
		Expect(f.drain(ctx, "a").Message).To(Equal("PDB default/train allows 0 disruptions: pod default/train-a"))
		f.takeWrites()
		for range 60 {
			f.step(ctx)
		}
		Expect(f.takeWrites()).To(HaveEach(evictPod), "the message stays")
		f.clock.SetTime(f.clock.Now().Add(10 * time.Minute))
		for range 3 {
			f.step(ctx)
		}
		drain := f.drain(ctx, "a")
		Expect(drain.State).To(Equal(upgrade.DrainFailed))
		Expect(drain.Message).To(HavePrefix("podDeletion.timeoutSeconds has passed: PDB default/train allows 0 disruptions"))
		f.blocked.Store(false)
		f.clock.SetTime(drain.RetryAt.Add(-2 * time.Minute))
		f.passes(ctx, time.Minute)
		Expect(f.node(ctx, "a").Spec.Unschedulable).To(BeFalse())
		f.clock.SetTime(drain.RetryAt)
		f.relaid(ctx, labels.MIGStateSuccess)
		Expect(f.userPods(ctx)).To(BeEmpty())
	})
})
