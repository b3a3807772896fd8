package node

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/freshness"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/plan"
	"github.com/clusterpolicy/gpu-operator/internal/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/status"
)

var notReady = corev1.Taint{Key: labels.TaintNotReady, Effect: corev1.TaintEffectNoSchedule}

func startupSpec(onFailure v1.OnFailure) v1.NodeStartupSpec {
	return v1.NodeStartupSpec{Taints: []v1.StartupTaint{{Key: notReady.Key, Effect: notReady.Effect}}, OnFailure: onFailure}
}

// A taint comes back only after a failure that lasts; what is on its way, or silent, is left as it is.
func TestWhatAVerdictMeansForTaints(t *testing.T) {
	verdict := func(state readiness.State, reason string) status.NodeAssessment {
		return status.NodeAssessment{NodeVerdict: readiness.NodeVerdict{Verdict: readiness.Verdict{State: state, Reason: reason}}}
	}
	usable, excluded := verdict(readiness.Ready, ""), verdict(readiness.Progressing, v1.ReasonExcluded)
	usable.Usable, excluded.Excluded = true, true
	failed := verdict(readiness.Failed, "CrashLoopBackOff")
	tests := map[string]struct {
		onFailure  v1.OnFailure
		assessment status.NodeAssessment
		// condition is what the node says, and since when.
		condition corev1.ConditionStatus
		since     time.Duration
		wish      plan.TaintWish
		wait      time.Duration
	}{
		"usable":                       {onFailure: v1.OnFailureTaint, assessment: usable, condition: corev1.ConditionFalse, since: time.Hour, wish: plan.DropTaints},
		"excluded":                     {onFailure: v1.OnFailureTaint, assessment: excluded, wish: plan.ReleaseTaints},
		"on its way for long":          {onFailure: v1.OnFailureTaint, assessment: verdict(readiness.Progressing, v1.ReasonStarting), condition: corev1.ConditionFalse, since: time.Hour},
		"failed, and that is reported": {onFailure: v1.OnFailureReport, assessment: failed, condition: corev1.ConditionFalse, since: time.Hour},
		"failed right now":             {onFailure: v1.OnFailureTaint, assessment: failed, condition: corev1.ConditionTrue, since: time.Hour, wait: 2 * time.Minute},
		"failed, and was never judged": {onFailure: v1.OnFailureTaint, assessment: failed, wait: 2 * time.Minute},
		"failed for half of the time":  {onFailure: v1.OnFailureTaint, assessment: failed, condition: corev1.ConditionFalse, since: time.Minute, wait: time.Minute},
		"failed for good":              {onFailure: v1.OnFailureTaint, assessment: failed, condition: corev1.ConditionFalse, since: 2 * time.Minute, wish: plan.PutTaints},
		"the kubelet has been silent":  {onFailure: v1.OnFailureTaint, assessment: verdict(readiness.Failed, v1.ReasonNodeUnreachable), condition: corev1.ConditionFalse, since: time.Hour},
		"failed since a time to come":  {onFailure: v1.OnFailureTaint, assessment: failed, condition: corev1.ConditionFalse, since: -time.Minute, wait: 3 * time.Minute},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			node := &corev1.Node{}
			if test.condition != "" {
				node.Status.Conditions = []corev1.NodeCondition{{
					Type: labels.ConditionGPUReady, Status: test.condition, LastTransitionTime: metav1.NewTime(now.Add(-test.since)),
				}}
			}
			r := &Reconciler{Clock: clocktesting.NewFakePassiveClock(now)}
			wish, wait := r.taintWish(node, startupSpec(test.onFailure), test.assessment)
			g.Expect(wish).To(Equal(test.wish))
			g.Expect(wait).To(Equal(test.wait))
		})
	}
}

// One write changes the taints, or none. What the API server refuses is tried again later, by one node for all.
func TestTaintsAreWrittenOnce(t *testing.T) {
	g := NewWithT(t)
	team := corev1.Taint{Key: "team", Value: "ml", Effect: corev1.TaintEffectNoSchedule}
	var answer error
	writes := 0
	builder := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			writes++
			if answer != nil {
				return answer
			}
			return c.Patch(ctx, object, patch, options...)
		},
	})
	for _, name := range []string{"a", "b"} {
		builder = builder.WithObjects(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{notReady, team}}})
	}
	c := builder.Build()
	clock := clocktesting.NewFakePassiveClock(now)
	r := &Reconciler{Client: c, Clock: clock, seen: freshness.NewTracker(), refused: newCalming(clock)}
	read := func(name string) *corev1.Node {
		node := &corev1.Node{}
		g.Expect(c.Get(t.Context(), client.ObjectKey{Name: name}, node)).To(Succeed())
		return node
	}
	write := func(node *corev1.Node, wish plan.TaintWish) (time.Duration, error) {
		return r.writeTaints(t.Context(), node, startupSpec(v1.OnFailureTaint), wish)
	}

	g.Expect(write(read("a"), plan.KeepTaints)).To(BeZero())
	g.Expect(writes).To(BeZero(), "nothing is to change")
	answer = apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "a", errors.New("the operator may not change the taints x"))
	g.Expect(write(read("a"), plan.DropTaints)).To(Equal(30 * time.Second))
	g.Expect(write(read("b"), plan.DropTaints)).To(Equal(30*time.Second), "the other node waits, too")
	g.Expect(writes).To(Equal(1))
	clock.SetTime(now.Add(31 * time.Second))
	answer = nil
	node := read("a")
	g.Expect(write(node, plan.DropTaints)).To(BeZero())
	g.Expect(writes).To(Equal(2))
	g.Expect(node.Spec.Taints).To(Equal([]corev1.Taint{team}), "what is known of the node is what was written")
	g.Expect(read("a").Spec.Taints).To(Equal([]corev1.Taint{team}))
	g.Expect(write(read("a"), plan.DropTaints)).To(BeZero())
	g.Expect(writes).To(Equal(2))

	g.Expect(write(read("a"), plan.PutTaints)).To(BeZero())
	g.Expect(read("a").Spec.Taints).To(Equal([]corev1.Taint{team, notReady}))
	g.Expect(read("a").Annotations).To(HaveKeyWithValue(labels.StartupTaints, "nvidia.com/gpu-operator.not-ready:NoSchedule"))
	g.Expect(marked(read("a"))).To(BeTrue(), "it is known without a policy")
	g.Expect(write(read("a"), plan.ReleaseTaints)).To(BeZero())
	g.Expect(read("a").Spec.Taints).To(Equal([]corev1.Taint{team}))
	g.Expect(read("a").Annotations).NotTo(HaveKey(labels.StartupTaints))

	stale := read("b")
	stale.ResourceVersion = "1"
	_, err := write(stale, plan.DropTaints)
	g.Expect(err).To(Satisfy(apierrors.IsConflict), "a list that has changed since is not overwritten")
	g.Expect(read("b").Spec.Taints).To(Equal([]corev1.Taint{notReady, team}))
}
