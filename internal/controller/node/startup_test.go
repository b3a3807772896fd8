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
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/node/nodemarks"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/node/startuptaint"
)

var notReady = corev1.Taint{Key: labels.TaintNotReady, Effect: corev1.TaintEffectNoSchedule}

func startupSpec(onFailure v1.OnFailure) v1.NodeStartupSpec {
	return v1.NodeStartupSpec{
		Taints:    []v1.StartupTaint{{Key: notReady.Key, Effect: notReady.Effect}},
		OnFailure: onFailure,
	}
}

// A taint is added again only after a failure that lasts, and not while a node is starting or its kubelet is down.
func TestTaintAction(t *testing.T) {
	verdict := func(state readiness.State, reason string) assess.Assessment {
		return assess.Assessment{
			NodeVerdict: readiness.NodeVerdict{Verdict: readiness.Verdict{State: state, Reason: reason}},
		}
	}
	usable, excluded := verdict(readiness.Ready, ""), verdict(readiness.Progressing, v1.ReasonExcluded)
	usable.Usable, excluded.Excluded = true, true
	tainted := verdict(readiness.Progressing, v1.ReasonStartupTaint)
	tainted.Usable = true
	failed := verdict(readiness.Failed, "CrashLoopBackOff")
	unoffered := verdict(readiness.Failed, v1.ReasonNotAllocatable)
	unoffered.NothingOffers = true
	tests := map[string]struct {
		onFailure v1.OnFailure
		latest    assess.Assessment
		// since is how long the node has been ready, or not ready.
		since time.Duration
		// readyBoot is the recorded boot of the node, and boot the present one.
		readyBoot, boot string

		wish startuptaint.Action
		wait time.Duration
	}{
		"usable": {onFailure: v1.OnFailureTaint, latest: usable, wish: startuptaint.Remove},
		"usable but for the taints": {
			onFailure: v1.OnFailureTaint,
			latest:    tainted,
			since:     time.Hour,
			wish:      startuptaint.Remove,
		},
		"working, but nothing is to offer its GPUs": {
			onFailure: v1.OnFailureTaint, latest: unoffered, since: time.Hour, wish: startuptaint.Remove,
		},
		"the same after a boot": {latest: unoffered, readyBoot: "one", boot: "two", wish: startuptaint.Remove},
		"excluded":              {onFailure: v1.OnFailureTaint, latest: excluded, wish: startuptaint.Release},
		"starting for long": {
			onFailure: v1.OnFailureTaint,
			latest:    verdict(readiness.Progressing, v1.ReasonStarting),
			since:     time.Hour,
		},
		"failed, and that is reported": {onFailure: v1.OnFailureReport, latest: failed, since: time.Hour},
		"failed right now":             {onFailure: v1.OnFailureTaint, latest: failed, wait: 2 * time.Minute},
		"failed for half of the time": {
			onFailure: v1.OnFailureTaint,
			latest:    failed,
			since:     time.Minute,
			wait:      time.Minute,
		},
		"failed for long": {
			onFailure: v1.OnFailureTaint,
			latest:    failed,
			since:     2 * time.Minute,
			wish:      startuptaint.Restore,
		},
		"starting after a boot": {
			latest: verdict(readiness.Progressing, v1.ReasonNotAllocatable), readyBoot: "one", boot: "two",
			wish: startuptaint.RestoreAfterBoot,
		},
		"not ready after a boot": {
			latest: verdict(readiness.Progressing, v1.ReasonNodeNotReady), readyBoot: "one", boot: "two",
			wish: startuptaint.RestoreAfterBoot,
		},
		"failed after a boot": {
			onFailure: v1.OnFailureTaint, latest: failed, readyBoot: "one", boot: "two",
			wish: startuptaint.RestoreAfterBoot,
		},
		"excluded after a boot":       {latest: excluded, readyBoot: "one", boot: "two", wish: startuptaint.Release},
		"usable after a boot":         {latest: usable, readyBoot: "one", boot: "two", wish: startuptaint.Remove},
		"starting in the same boot":   {latest: verdict(readiness.Progressing, ""), readyBoot: "one", boot: "one"},
		"starting in an unknown boot": {latest: verdict(readiness.Progressing, ""), readyBoot: "one"},
		"starting for the first time": {latest: verdict(readiness.Progressing, ""), boot: "one"},
		"the kubelet is not ready": {
			onFailure: v1.OnFailureTaint, latest: verdict(readiness.Failed, v1.ReasonNodeNotReady), since: time.Hour,
		},
		"the kubelet does not respond": {
			onFailure: v1.OnFailureTaint,
			latest:    verdict(readiness.Failed, v1.ReasonNodeUnreachable),
			since:     time.Hour,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			node := &corev1.Node{}
			node.Annotations = map[string]string{labels.ReadyBoot: test.readyBoot}
			node.Status.NodeInfo.BootID = test.boot
			s := &scope{Reconciler: New(Options{Timing: DefaultTiming()}), now: now, node: node}
			s.entry.Latest = test.latest
			s.entry.Latest.Since = now.Add(-test.since)
			wish, wait := s.taintAction(startupSpec(test.onFailure))
			g.Expect(wish).To(Equal(test.wish))
			g.Expect(wait).To(Equal(test.wait))
		})
	}
}

// The state before is that of the last assessment or, after a restart, of the condition.
func TestStanding(t *testing.T) {
	condition := func(status corev1.ConditionStatus, ago time.Duration) []corev1.NodeCondition {
		return []corev1.NodeCondition{
			{Type: labels.ConditionGPUReady, Status: status, LastTransitionTime: metav1.NewTime(now.Add(-ago))},
		}
	}
	failed := assess.Assessment{At: now.Add(-time.Second), Since: now.Add(-time.Minute)}
	failed.State = readiness.Failed
	tests := map[string]struct {
		latest     assess.Assessment
		conditions []corev1.NodeCondition
		want       assess.ReadySince
	}{
		"no state": {},
		"a condition": {
			conditions: condition(corev1.ConditionFalse, time.Hour),
			want:       assess.ReadySince{Since: now.Add(-time.Hour)},
		},
		"a condition that is true": {
			conditions: condition(corev1.ConditionTrue, time.Hour),
			want:       assess.ReadySince{Ready: true, Since: now.Add(-time.Hour)},
		},
		"a condition with a future time": {conditions: condition(corev1.ConditionFalse, -time.Minute)},
		"an assessment":                  {latest: failed, want: assess.ReadySince{Since: now.Add(-time.Minute)}},
		"an assessment has precedence over a condition": {
			latest:     failed,
			conditions: condition(corev1.ConditionTrue, time.Hour),
			want:       assess.ReadySince{Since: now.Add(-time.Minute)},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := &scope{
				node:  &corev1.Node{Status: corev1.NodeStatus{Conditions: test.conditions}},
				entry: fleet.Entry{Latest: test.latest},
				now:   now,
			}
			NewWithT(t).Expect(s.previousReadySince()).To(Equal(test.want))
		})
	}
}

// Taints are changed in one write. A forbidden write is retried later, by one node for all.
func TestTaintsAreWrittenOnce(t *testing.T) {
	g := NewWithT(t)
	team := corev1.Taint{Key: "team", Value: "ml", Effect: corev1.TaintEffectNoSchedule}
	var answer error
	writes := 0
	builder := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(
			ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption,
		) error {
			writes++
			if answer != nil {
				return answer
			}
			return c.Patch(ctx, object, patch, options...)
		},
	})
	for _, name := range []string{"a", "b"} {
		builder = builder.WithObjects(&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       corev1.NodeSpec{Taints: []corev1.Taint{notReady, team}},
		})
	}
	c := builder.Build()
	clock := clocktesting.NewFakePassiveClock(now)
	r := New(Options{Client: c, Clock: clock, Timing: DefaultTiming()})
	read := func(name string) *corev1.Node {
		node := &corev1.Node{}
		g.Expect(c.Get(t.Context(), client.ObjectKey{Name: name}, node)).To(Succeed())
		return node
	}
	var written *corev1.Node
	write := func(node *corev1.Node, wish startuptaint.Action) (time.Duration, error) {
		s := &scope{Reconciler: r, node: node, basis: &fleet.Basis{}, now: clock.Now()}
		err := s.writeTaints(t.Context(), startupSpec(v1.OnFailureTaint), wish, "")
		written = s.node
		return s.requeueAfter, err
	}

	g.Expect(write(read("a"), startuptaint.Keep)).To(BeZero())
	g.Expect(writes).To(BeZero(), "there is no change")
	answer = apierrors.NewForbidden(
		schema.GroupResource{Resource: "nodes"}, "a", errors.New("the operator may not change the taints x"),
	)
	g.Expect(write(read("a"), startuptaint.Remove)).To(Equal(30 * time.Second))
	g.Expect(write(read("b"), startuptaint.Remove)).To(Equal(30*time.Second), "the other node waits as well")
	g.Expect(writes).To(Equal(1))
	clock.SetTime(now.Add(31 * time.Second))
	answer = nil
	g.Expect(write(read("a"), startuptaint.Remove)).To(BeZero())
	g.Expect(writes).To(Equal(2))
	g.Expect(written.Spec.Taints).To(Equal([]corev1.Taint{team}), "the scope has the written node")
	g.Expect(read("a").Spec.Taints).To(Equal([]corev1.Taint{team}))
	g.Expect(write(read("a"), startuptaint.Remove)).To(BeZero())
	g.Expect(writes).To(Equal(2))

	g.Expect(write(read("a"), startuptaint.Restore)).To(BeZero())
	g.Expect(read("a").Spec.Taints).To(Equal([]corev1.Taint{team, notReady}))
	g.Expect(read("a").Annotations).
		To(HaveKeyWithValue(labels.StartupTaints, "nvidia.com/gpu-operator.not-ready:NoSchedule"))
	g.Expect(nodemarks.WasWritten(read("a"))).To(BeTrue(), "it is recognised without a policy")
	g.Expect(write(read("a"), startuptaint.Release)).To(BeZero())
	g.Expect(read("a").Spec.Taints).To(Equal([]corev1.Taint{team}))
	g.Expect(read("a").Annotations).NotTo(HaveKey(labels.StartupTaints))

	stale := read("b")
	stale.ResourceVersion = "1"
	_, err := write(stale, startuptaint.Remove)
	g.Expect(err).To(Satisfy(apierrors.IsConflict), "a list that has changed since is not overwritten")
	g.Expect(read("b").Spec.Taints).To(Equal([]corev1.Taint{notReady, team}))
}

// The boot is recorded while the GPUs can be used, where a taint is to come back or refused pods are to be deleted.
func TestRecordedBoots(t *testing.T) {
	cleans := v1.NodeStartupSpec{CleanFailedPods: new(true)}
	restores, none := startupSpec(v1.OnFailureReport), v1.NodeStartupSpec{CleanFailedPods: new(false)}
	restores.CleanFailedPods = new(false)
	for name, test := range map[string]struct {
		spec     v1.NodeStartupSpec
		action   startuptaint.Action
		recorded string
		boot     string
		want     string
	}{
		"usable":                         {restores, startuptaint.Remove, "one", "two", "two"},
		"usable, of an unknown boot":     {restores, startuptaint.Remove, "one", "", "one"},
		"usable, to delete refused pods": {cleans, startuptaint.Remove, "one", "two", "two"},
		"usable, without a use":          {none, startuptaint.Remove, "one", "two", ""},
		"not usable":                     {restores, startuptaint.Keep, "one", "two", "one"},
		"excluded":                       {restores, startuptaint.Release, "one", "two", ""},
	} {
		s := &scope{node: &corev1.Node{}}
		s.node.Annotations = map[string]string{labels.ReadyBoot: test.recorded}
		s.node.Status.NodeInfo.BootID = test.boot
		NewWithT(t).Expect(s.readyBoot(test.spec, test.action)).To(Equal(test.want), name)
	}
}

// An annotation is changed if the node has another value.
func TestNotes(t *testing.T) {
	for _, test := range []struct {
		has  map[string]string
		want string
		note map[string]*string
	}{
		{nil, "", map[string]*string{}},
		{nil, "x", map[string]*string{"k": new("x")}},
		{map[string]string{"k": "x"}, "x", map[string]*string{}},
		{map[string]string{"k": "y"}, "x", map[string]*string{"k": new("x")}},
		{map[string]string{"k": "y"}, "", map[string]*string{"k": nil}},
	} {
		notes := map[string]*string{}
		note(notes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: test.has}}, "k", test.want)
		NewWithT(t).Expect(notes).To(Equal(test.note))
	}
	patch := taintPatch(&corev1.Node{}, nil, nil)
	NewWithT(t).Expect(patch["metadata"]).To(Equal(map[string]any{"resourceVersion": ""}), "without annotations")
}

// Taints are changed as the assessment says, with the boot that is recorded, and again when time alone changes that.
func TestTaintsFollowTheAssessment(t *testing.T) {
	failed := assess.Assessment{Since: now.Add(-time.Minute)}
	failed.State, failed.Reason = readiness.Failed, "CrashLoopBackOff"
	lasting := failed
	lasting.Since = now.Add(-time.Hour)
	for name, test := range map[string]struct {
		latest assess.Assessment
		fails  error
		paused bool
		taints []corev1.Taint
		notes  map[string]string
		writes int
		again  time.Duration
	}{
		"failed recently": {latest: failed, again: time.Minute},
		"failed for long": {
			latest: lasting, taints: []corev1.Taint{notReady}, writes: 1,
			notes: map[string]string{labels.StartupTaints: notReady.Key + ":NoSchedule"},
		},
		"failed for long, while paused": {latest: lasting, paused: true},
		"usable": {
			latest: assess.Assessment{Usable: true}, notes: map[string]string{labels.ReadyBoot: "one"}, writes: 1,
		},
		"with an error": {latest: lasting, fails: errors.New("refused"), writes: 1},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			spec := startupSpec(v1.OnFailureTaint)
			spec.CleanFailedPods = new(false)
			e.spec.Paused = &test.paused
			e.publish()
			s := e.scope(func(s *scope) { s.entry.Latest, s.node.Status.NodeInfo.BootID = test.latest, "one" })
			e.patchErr = test.fails
			if err := s.updateTaints(t.Context(), spec); test.fails != nil {
				e.Expect(err).To(MatchError("patching taints of node a: refused"))
			} else {
				e.Expect(err).NotTo(HaveOccurred())
			}
			e.Expect(s.requeueAfter).To(Equal(test.again))
			e.Expect(e.writes).To(Equal(test.writes))
			e.Expect(e.node().Spec.Taints).To(Equal(test.taints))
			e.Expect(e.node().Annotations).To(Equal(test.notes))
		})
	}
}
