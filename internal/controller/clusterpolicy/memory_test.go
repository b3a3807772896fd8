package clusterpolicy

import (
	"context"
	"runtime"
	"weak"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/removal"
	"github.com/clusterpolicy/gpu-operator/test/heap"
)

// passWeakly runs a pass, and returns a weak pointer to its scope.
func (env *testEnv) passWeakly(ctx context.Context) (weak.Pointer[scope], error) {
	env.clock.Step(statusInterval)
	s := env.reconciler.newScope()
	pointer := weak.Make(s)
	_, err := s.run(ctx)
	return pointer, err
}

// expectReleased runs three passes, each after a change of the cluster, and expects that no scope is left.
func (env *testEnv) expectReleased(ctx context.Context, change func(), outcome OmegaMatcher) {
	GinkgoHelper()
	var scopes []weak.Pointer[scope]
	for range 3 {
		change()
		s, err := env.passWeakly(ctx)
		Expect(err).To(outcome)
		scopes = append(scopes, s)
	}
	heap.Collect()
	for i, s := range scopes {
		alive := s.Value() != nil
		Expect(alive).To(BeFalse(), "scope of pass %d", i+1)
	}
	runtime.KeepAlive(env)
}

// A scope has the view of all nodes, and all that the pass has read.
var _ = Describe("The scope of a pass", func() {
	var env *testEnv
	changes := 0

	// changeInput changes a label of the node and the spec, so that nothing of the last pass can be used again.
	changeInput := func(ctx context.Context) func() {
		return func() {
			changes++
			value := string(rune('a' + changes%2))
			env.nodes[0].Labels["example.com/changes"] = value
			env.editSpec(ctx, func(spec *v1.ClusterPolicySpec) {
				spec.DaemonSets = &v1.DaemonSetsSpec{Labels: v1.Labels{"example.com/changes": v1.LabelValue(value)}}
			})
			env.rollOut(ctx)
			env.assessNodes(ctx)
		}
	}

	BeforeEach(func(ctx SpecContext) {
		env = newEnv(migNode("a"))
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{})
		env.settle(ctx)
	})

	It("is garbage after the pass", func(ctx SpecContext) {
		env.expectReleased(ctx, changeInput(ctx), Succeed())
		Expect(env.fleet.Basis().Decisions).NotTo(BeNil())
	})

	DescribeTable("is garbage after a pass that failed", func(ctx SpecContext, op string) {
		change := changeInput(ctx)
		env.expectReleased(ctx, func() {
			change()
			env.failOnce(op, 1)
		}, MatchError(errInjected))
	},
		Entry(nil, "cached list DaemonSet"),
		Entry(nil, "reference get ValidatingAdmissionPolicyBinding"),
	)

	It("is garbage after a pass that removes the stack of a deleted policy", func(ctx SpecContext) {
		Expect(admin.Delete(ctx, env.policy(ctx))).To(Succeed())
		_, err := env.passWeakly(ctx)
		Expect(err).NotTo(HaveOccurred())
		env.expectReleased(ctx, func() {
			changes++
			env.setRemoval(removal.Step{Action: removal.Hold, Message: "held by team-a/train-" + string(rune('a'+changes%2))})
		}, Succeed())
		Expect(env.fleet.Basis().Removal).NotTo(BeNil())
		Expect(condition(env.policy(ctx), v1.ConditionReady)).To(Equal("False Removing"))
	})
})
