package clusterpolicy

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/render"
)

var _ = Describe("What a pass keeps for the next one", Ordered, ContinueOnFailure, func() {
	var b *bed

	// objects are all that are kept, by operand.
	objects := func() map[operand.Name][]render.Object {
		found := map[operand.Name][]render.Object{}
		for name, cached := range b.reconciler.caches.rendered {
			found[name] = cached.objects
		}
		return found
	}

	BeforeAll(func(ctx SpecContext) {
		b = newBed(gpuNode("a"))
		b.create(ctx, "policy", v1.ClusterPolicySpec{})
	})
	BeforeEach(func(ctx SpecContext) { b.settle(ctx) })

	It("is the same as long as nothing changes", func(ctx SpecContext) {
		decisions, made, basis := b.fleet.Basis().Decisions, objects(), b.fleet.Basis()
		Expect(made).To(HaveLen(8))
		b.pass(ctx, longer)
		Expect(b.fleet.Basis().Decisions).To(BeIdenticalTo(decisions))
		Expect(b.fleet.Basis()).To(BeIdenticalTo(basis))
		for name, now := range objects() {
			for i := range now {
				Expect(now[i]).To(BeIdenticalTo(made[name][i]), "%s", name)
			}
		}
		Expect(b.writes()).To(BeEmpty())
	})

	It("is another one for the operand alone whose DaemonSet is another", func(ctx SpecContext) {
		made := objects()
		ds := daemonSet(ctx, pluginName)
		ds.Annotations[labels.TemplateDigest] = "another"
		Expect(admin.Update(ctx, ds)).To(Succeed())
		b.pass(ctx, 0)
		for name, now := range objects() {
			if name == "device-plugin" {
				Expect(now[0]).NotTo(BeIdenticalTo(made[name][0]))
				continue
			}
			Expect(now[0]).To(BeIdenticalTo(made[name][0]))
		}
	})

	DescribeTable("may be lost without a write", func(ctx SpecContext, lose func()) {
		lose()
		next := b.pass(ctx, time.Second)
		b.assess(ctx)
		b.pass(ctx, longer)
		Expect(b.writes()).To(BeEmpty())
		Expect(next).To(BeNumerically("<=", 2*time.Second))
		Expect(condition(b.policy(ctx), v1.ConditionReady)).To(Equal("True Reconciled"))
	},
		Entry("the plan", func() { b.reconciler.caches.plan = planCache{} }),
		Entry("the objects", func() { b.reconciler.caches.rendered = nil }),
		Entry("all of it", func() { b.reconciler.caches = caches{} }),
	)
})
