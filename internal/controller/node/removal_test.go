package node

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/removal"
)

// A node that pods with GPUs hold is looked at again, the less often the longer they have held it.
func TestHowOftenAHeldNodeIsLookedAt(t *testing.T) {
	now := time.Unix(10_000, 0)
	timing := DefaultTiming()
	hold := removal.Step{Action: removal.Hold}
	recently, yesterday := now.Add(-40*time.Second), now.AddDate(0, 0, -1)
	for name, test := range map[string]struct {
		step   removal.Step
		before *fleet.NodeRemoval
		since  time.Time
		again  time.Duration
	}{
		"for the first time":   {hold, nil, now, timing.RetryHeld},
		"after another step":   {hold, &fleet.NodeRemoval{}, now, timing.RetryHeld},
		"for 40 seconds":       {hold, &fleet.NodeRemoval{HeldSince: recently}, recently, 20 * time.Second},
		"for a day":            {hold, &fleet.NodeRemoval{HeldSince: yesterday}, yesterday, timing.MaxRetryHeld},
		"until a time":         {removal.Step{Action: removal.Wait, Until: now.Add(time.Hour)}, nil, time.Time{}, time.Hour},
		"until a time that is": {removal.Step{Action: removal.Wait, Until: now}, nil, time.Time{}, time.Millisecond},
		"at the end":           {removal.Step{Action: removal.Done}, &fleet.NodeRemoval{HeldSince: now}, time.Time{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := &scope{Reconciler: &Reconciler{Options: Options{Timing: timing}}, entry: fleet.Entry{}, now: now}
			s.recordRemoval(test.step, test.before)
			g.Expect(s.entry.Removal).To(HaveValue(Equal(fleet.NodeRemoval{Step: test.step, HeldSince: test.since})))
			g.Expect(s.requeueAfter).To(Equal(test.again))
		})
	}
}

// What the removal knows of a kubelet is from the condition Ready, and without one from when the node was created.
func TestKubeletOfANode(t *testing.T) {
	created, changed := time.Unix(1000, 0), time.Unix(2000, 0)
	for name, test := range map[string]struct {
		conditions []corev1.NodeCondition
		want       removal.Kubelet
	}{
		"none": {nil, removal.Kubelet{Since: created}},
		"another condition": {
			[]corev1.NodeCondition{{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue}},
			removal.Kubelet{Since: created},
		},
		"ready":       {readyCondition(corev1.ConditionTrue, changed), removal.Kubelet{Ready: true, Since: changed}},
		"not ready":   {readyCondition(corev1.ConditionFalse, changed), removal.Kubelet{Since: changed}},
		"unreachable": {readyCondition(corev1.ConditionUnknown, changed), removal.Kubelet{Unreachable: true, Since: changed}},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(created)},
				Status:     corev1.NodeStatus{Conditions: test.conditions},
			}
			NewWithT(t).Expect(kubeletOf(node)).To(Equal(test.want))
		})
	}
}

func readyCondition(status corev1.ConditionStatus, since time.Time) []corev1.NodeCondition {
	return []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.NewTime(since)},
	}
}

// A pod that cleans up counts until it is deleted.
func TestCleanerOfANode(t *testing.T) {
	ready := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
		{Type: corev1.PodReady, Status: corev1.ConditionTrue},
	}}}
	deleted, failed, starting := ready.DeepCopy(), &corev1.Pod{}, &corev1.Pod{}
	deleted.DeletionTimestamp = new(metav1.Unix(1, 0))
	failed.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"}
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want removal.Cleaner
	}{
		"none":     {nil, removal.Cleaner{}},
		"starting": {starting, removal.Cleaner{Message: "the pod is not scheduled yet"}},
		"ready":    {ready, removal.Cleaner{Done: true}},
		"deleted":  {deleted, removal.Cleaner{}},
		"failed":   {failed, removal.Cleaner{Failed: true, Message: "the pod failed: Evicted"}},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(cleanerOf(test.pod, now)).To(Equal(test.want))
		})
	}
}

// The labels of a node stay while taints or conditions are left, so that the release is repeated.
func TestReleaseIsRepeatedUntilAllIsGone(t *testing.T) {
	for name, test := range map[string]struct {
		// fails is the write that the API server refuses, from 1.
		fails, writes int
	}{
		"the taints": {1, 1}, "the conditions": {2, 2}, "the labels": {3, 3}, "none": {0, 3},
	} {
		t.Run(name, func(t *testing.T) {
			g, writes := NewWithT(t), 0
			refused := errors.New("refused")
			write := func() error {
				if writes++; writes == test.fails {
					return refused
				}
				return nil
			}
			node := &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{labels.Pool: "p"}},
				Spec: corev1.NodeSpec{Taints: []corev1.Taint{{
					Key: labels.TaintNotReady, Effect: corev1.TaintEffectNoSchedule,
				}}},
				Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: labels.ConditionGPUReady}}},
			}
			c := fake.NewClientBuilder().WithObjects(node).WithStatusSubresource(node).WithInterceptorFuncs(interceptor.Funcs{
				Patch: func(
					ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption,
				) error {
					return cmp.Or(write(), c.Patch(ctx, object, patch, options...))
				},
				SubResourcePatch: func(
					ctx context.Context, c client.Client, name string, object client.Object, patch client.Patch,
					options ...client.SubResourcePatchOption,
				) error {
					return cmp.Or(write(), c.SubResource(name).Patch(ctx, object, patch, options...))
				},
			}).Build()
			clock := clocktesting.NewFakePassiveClock(now)
			s := &scope{
				Reconciler: New(Options{Client: c, Clock: clock, Timing: DefaultTiming(), Fleet: fleet.New()}),
				node:       node, basis: &fleet.Basis{}, now: now,
			}
			err := s.releaseRemoved(t.Context(), removal.Step{Action: removal.Release})
			g.Expect(writes).To(Equal(test.writes))
			if test.fails == 0 {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(refused))
			}
		})
	}
}
