package clusterpolicy

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
)

var _ = Describe("The caches of a pass", Ordered, ContinueOnFailure, func() {
	var env *testEnv

	// objects returns the cached objects, by operand.
	objects := func() map[operand.Name][]manifest.Object {
		found := map[operand.Name][]manifest.Object{}
		for name, cached := range env.reconciler.caches.rendered {
			found[name] = cached.objects
		}
		return found
	}

	BeforeAll(func(ctx SpecContext) {
		env = newEnv(gpuNode("a"))
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{})
	})
	BeforeEach(func(ctx SpecContext) { env.settle(ctx) })

	It("are reused while nothing changes", func(ctx SpecContext) {
		decisions, before, basis := env.fleet.Basis().Decisions, objects(), env.fleet.Basis()
		Expect(before).To(HaveLen(8))
		env.pass(ctx, statusInterval)
		Expect(env.fleet.Basis().Decisions).To(BeIdenticalTo(decisions))
		Expect(env.fleet.Basis()).To(BeIdenticalTo(basis))
		for name, now := range objects() {
			for i := range now {
				Expect(now[i]).To(BeIdenticalTo(before[name][i]), "%s", name)
			}
		}
		Expect(env.takeWrites()).To(BeEmpty())
	})

	It("are replaced only for the operand whose DaemonSet changes", func(ctx SpecContext) {
		before := objects()
		ds := daemonSet(ctx, pluginName)
		ds.Annotations[labels.TemplateDigest] = "another"
		Expect(admin.Update(ctx, ds)).To(Succeed())
		env.pass(ctx, 0)
		for name, now := range objects() {
			if name == "device-plugin" {
				Expect(now[0]).NotTo(BeIdenticalTo(before[name][0]))
				continue
			}
			Expect(now[0]).To(BeIdenticalTo(before[name][0]))
		}
	})

	DescribeTable("may be lost without a write", func(ctx SpecContext, reset func()) {
		reset()
		next := env.pass(ctx, time.Second)
		env.assessNodes(ctx)
		env.pass(ctx, statusInterval)
		Expect(env.takeWrites()).To(BeEmpty())
		Expect(next).To(BeNumerically("<=", 2*time.Second))
		Expect(condition(env.policy(ctx), v1.ConditionReady)).To(Equal("True Reconciled"))
	},
		Entry("the plan", func() { env.reconciler.caches.plan = planCache{} }),
		Entry("the objects", func() { env.reconciler.caches.rendered = nil }),
		Entry("all caches", func() { env.reconciler.caches = caches{} }),
	)
})
