package clusterpolicy

import (
	"context"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/stack/apply"
)

// mutatedImage is the image that the admission policy sets.
const mutatedImage = "example.com/changed:v1"

var _ = Describe("A call that hangs", func() {
	It("delays no other object and no status", func(ctx SpecContext) {
		env := newEnv(gpuNode("a"))
		env.useDefaultApplyTiming()
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{})
		released, ended := make(chan struct{}), atomic.Bool{}
		env.onCall(func(ctx context.Context, c call) error {
			if c != (call{op: "apply DaemonSet", name: pluginName}) {
				return nil
			}
			select {
			case <-released:
				return nil
			case <-ctx.Done():
				ended.Store(true)
				return ctx.Err()
			}
		})
		env.pass(ctx, 0)
		Expect(ended.Load()).To(BeFalse(), "the pass has ended before the call")
		Eventually(func() int { return len(daemonSets(ctx)) }).Should(Equal(5), "all other DaemonSets")
		env.reportStatus(ctx)
		policy := env.policy(ctx)
		Expect(operandOf(policy, "device-plugin")).To(And(
			HaveField("State", v1.OperandError), HaveField("Message", ContainSubstring("no answer from the API server")),
		))
		Expect(operandOf(policy, "driver").State).To(Equal(v1.OperandReady))
		close(released)
		Eventually(env.reconciler.Applier.Events()).Should(Receive(), "an event for a pass")
		env.settle(ctx)
	})

	DescribeTable("and that the pass waits for ends with its deadline", func(
		ctx SpecContext, op string, prepare func(context.Context, *testEnv),
	) {
		env := newEnv(gpuNode("a"))
		env.reconciler.Timing.Deadline = time.Minute
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{})
		prepare(ctx, env)
		unbounded := atomic.Bool{}
		env.onCall(func(ctx context.Context, c call) error {
			if c.op != op {
				return nil
			}
			if deadline, bounded := ctx.Deadline(); !bounded || time.Until(deadline) > time.Minute {
				unbounded.Store(true)
			}
			return context.DeadlineExceeded
		})
		_, err := env.reconcileAfter(ctx, statusInterval)
		Expect(err).To(Or(BeNil(), MatchError(context.DeadlineExceeded)))
		Expect(env.takeCalls()).To(ContainElement(WithTransform(func(c call) string { return c.op }, Equal(op))))
		Expect(unbounded.Load()).To(BeFalse(), "a call that may hang for longer")
		Expect(daemonSets(ctx)).To(HaveLen(6))
	},
		Entry(nil, "live get CustomResourceDefinition", func(ctx context.Context, env *testEnv) {
			env.settle(ctx)
			resetSchema(ctx, env)
			Expect(admin.Delete(ctx, daemonSet(ctx, pluginName))).To(Succeed())
		}),
		Entry(nil, "live list Event", func(ctx context.Context, env *testEnv) {
			env.settle(ctx)
			env.failPodCreation(ctx, pluginName)
			env.pass(ctx, 0)
		}),
	)
})

var _ = Describe("A mutating admission policy that changes a DaemonSet", func() {
	It("is reported, retried with back-off, and repaired once the policy is deleted", func(ctx SpecContext) {
		env := newEnv(gpuNode("a"))
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{})
		env.settle(ctx)
		wanted := pluginImage(ctx)
		end := installMutatingPolicy(ctx)
		Expect(admin.Delete(ctx, daemonSet(ctx, pluginName))).To(Succeed())
		env.pass(ctx, statusInterval)
		Expect(env.takeWrites()).To(Equal([]string{"apply DaemonSet " + pluginName}))
		Expect(pluginImage(ctx)).To(Equal(mutatedImage))
		Expect(env.reportStatus(ctx)).To(Equal(time.Second), "the back-off of the object")
		policy := env.policy(ctx)
		Expect(condition(policy, v1.ConditionReady)).To(Equal("False Altered"))
		Expect(operandOf(policy, "device-plugin")).To(And(
			HaveField("State", v1.OperandError), HaveField("Reason", v1.ReasonAltered),
			HaveField("Message", ContainSubstring("spec.template.spec.containers[nvidia-device-plugin].image")),
		))
		env.takeCalls()
		for range 3 { // Passes within the back-off.
			env.pass(ctx, 100*time.Millisecond)
		}
		Expect(env.takeWrites()).To(BeEmpty())
		for _, backoff := range []time.Duration{2, 4, 8, 15, 15} {
			Expect(env.pass(ctx, statusInterval+4*time.Second)).To(Equal(backoff * time.Second))
			Expect(env.takeWrites()).To(Equal([]string{"apply DaemonSet " + pluginName}), "one attempt after each back-off")
		}

		end(ctx)
		Expect(env.reconciler.Applier.RetryAfter()).To(BeNumerically("<=", 30*time.Second))
		env.pass(ctx, env.reconciler.Applier.RetryAfter())
		Expect(pluginImage(ctx)).To(Equal(wanted))
		env.settle(ctx)
	})
})

// useDefaultApplyTiming makes rounds wait as long as in production.
func (env *testEnv) useDefaultApplyTiming() {
	options := env.reconciler.Options
	env.reconciler.Applier = apply.New(options.Client, env.client("live", false), env.clock, apply.DefaultTiming())
}

func pluginImage(ctx context.Context) string {
	GinkgoHelper()
	return daemonSet(ctx, pluginName).Spec.Template.Spec.Containers[0].Image
}

// installMutatingPolicy makes the API server change the image of the device plugin in every write. The returned
// function removes the admission policy.
func installMutatingPolicy(ctx context.Context) (end func(context.Context)) {
	GinkgoHelper()
	meta := metav1.ObjectMeta{Name: "change-image"}
	objects := []client.Object{
		&admissionv1.MutatingAdmissionPolicy{ObjectMeta: meta, Spec: admissionv1.MutatingAdmissionPolicySpec{
			FailurePolicy: new(admissionv1.Fail),
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				ResourceNames: []string{pluginName},
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
					Rule: admissionv1.Rule{
						APIGroups:   []string{"apps"},
						APIVersions: []string{"v1"},
						Resources:   []string{"daemonsets"},
					},
				},
			}}},
			Mutations: []admissionv1.Mutation{{
				PatchType: admissionv1.PatchTypeJSONPatch,
				JSONPatch: &admissionv1.JSONPatch{
					Expression: `[JSONPatch{op: "replace", path: "/spec/template/spec/containers/0/image", ` +
						`value: "` + mutatedImage + `"}]`,
				},
			}},
			ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
		}},
		&admissionv1.MutatingAdmissionPolicyBinding{
			ObjectMeta: meta,
			Spec:       admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: meta.Name},
		},
	}
	end = func(ctx context.Context) {
		GinkgoHelper()
		for _, object := range objects {
			Expect(client.IgnoreNotFound(admin.Delete(ctx, object))).To(Succeed())
		}
		Eventually(dryRunImage).WithContext(ctx).Should(Not(Equal(mutatedImage)))
	}
	for _, object := range objects {
		Expect(admin.Create(ctx, object)).To(Succeed())
	}
	DeferCleanup(func(ctx SpecContext) { end(ctx) })
	Eventually(dryRunImage).WithContext(ctx).Should(Equal(mutatedImage))
	return end
}

// dryRunImage returns the image that the device plugin would have after a write.
func dryRunImage(ctx context.Context) (string, error) {
	ds := &appsv1.DaemonSet{}
	err := admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: pluginName}, ds)
	if err != nil {
		return "", client.IgnoreNotFound(err)
	}
	ds.Spec.Template.Spec.Containers[0].Image = "example.com/dry-run:v1"
	if err := admin.Update(ctx, ds, client.DryRunAll); err != nil {
		return "", err
	}
	return ds.Spec.Template.Spec.Containers[0].Image, nil
}
