package node

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/kube/events"
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
	ready := readyPod()
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

// The labels of a node stay while taints or conditions are left, so that the release is repeated. Without a removal the
// labels are first. Each write that fails ends it.
func TestReleaseIsRepeatedUntilAllIsGone(t *testing.T) {
	removed := func(s *scope) error {
		return s.carryOut(t.Context(), removal.Step{Action: removal.Release, Message: "it fails"})
	}
	released := func(s *scope) error { return s.release(t.Context(), "") }
	for name, test := range map[string]struct {
		release func(*scope) error
		// fails is the write that the API server refuses, from 1.
		fails, writes int
	}{
		"the taints": {removed, 1, 1}, "the conditions": {removed, 2, 2}, "the labels": {removed, 3, 3},
		"none": {removed, 0, 3}, "first": {released, 1, 1}, "second": {released, 2, 2}, "third": {released, 3, 3},
		"none of three": {released, 0, 3},
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
				ObjectMeta: metav1.ObjectMeta{
					Name: "a", UID: "u", Labels: map[string]string{labels.Pool: "p"},
					Annotations: map[string]string{
						labels.StartupTaints: labels.TaintNotReady + ":NoSchedule", labels.UpgradeInitialCordon: labels.True,
					},
				},
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
				Reconciler: New(Options{
					Client: c, Clock: clock, Timing: DefaultTiming(), Fleet: fleet.New(),
					Events: events.NewRecorder(c, clock, func(string) {}),
				}),
				node: node, basis: &fleet.Basis{Policy: &v1.ClusterPolicy{}}, now: now,
			}
			err := test.release(s)
			g.Expect(writes).To(Equal(test.writes))
			if test.fails == 0 {
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(s.node).To(And(HaveField("Spec.Taints", BeEmpty()), HaveField("Status.Conditions", BeEmpty()),
					HaveField("Labels", BeEmpty())))
				// The rest is the upgrade controller's, if there is a policy.
				kept, warnings := map[string]string{labels.UpgradeInitialCordon: labels.True}, &corev1.EventList{}
				g.Expect(c.List(t.Context(), warnings)).To(Succeed())
				if name == "none" {
					g.Expect(warnings.Items).To(HaveExactElements(And(HaveField("Reason", "NotCleanedUp"), HaveField("Message",
						"a: released without cleaning up its host, as it fails: the driver's kernel modules, files under /run/nvidia "+
							"and /usr/local/nvidia, and the configuration of the container runtime may be left"))))
					kept = nil
				}
				g.Expect(s.node.Annotations).To(Equal(kept))
			} else {
				g.Expect(err).To(MatchError(refused))
			}
		})
	}
}

// What the next step of a node depends on is all read, the pods that use its GPUs only if they decide it.
func TestWhatTheRemovalReads(t *testing.T) {
	user := userPod(func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Resources.Limits, pod.Spec.RuntimeClassName = nil, new("gpus")
	})
	refused := errors.New("refused")
	driver := removal.Pod{Name: "driver", Operand: "driver"}
	managed := func(node *corev1.Node) {
		node.Labels[labels.Pool], node.Labels[labels.DeployPrefix+"driver"] = "p", labels.True
	}
	for name, test := range map[string]struct {
		change func(*corev1.Node)
		force  bool
		fails  map[string]error
		live   error
		want   *removal.Node
		failed bool
	}{
		"by force": {
			force: true,
			change: func(node *corev1.Node) {
				node.Labels[labels.Pool], node.Labels[labels.DeployOperands] = "p", labels.False
				node.Annotations = map[string]string{labels.MIGDrain: `{"uid":"u"}`}
			},
			want: &removal.Node{
				Written: true, Marked: true, Managed: true, Upgrading: true, Excluded: true, Force: true,
				Pods: []removal.Pod{driver},
			},
		},
		"a node that is released": {
			want: &removal.Node{Pods: []removal.Pod{driver, {Name: "x-cleanup"}}},
		},
		"a node in use": {
			change: managed,
			want: &removal.Node{
				Written: true, Marked: true, Managed: true, Pods: []removal.Pod{driver}, Users: []string{"team/training"},
			},
		},
		"pods that cannot be listed": {fails: map[string]error{"list": refused}, failed: true},
		"users that cannot be listed": {
			change: managed, live: refused, failed: true,
			want: &removal.Node{Written: true, Marked: true, Managed: true, Pods: []removal.Pod{driver}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.keepOnly("driver")
			e.Expect(e.client.Create(t.Context(), &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: "gpu-operator", Name: "x-cleanup", Labels: map[string]string{labels.Operand: labels.CleanupOperand},
				},
				Spec: corev1.PodSpec{NodeName: "a"}, Status: readyPod().Status,
			})).To(Succeed())
			s := e.scope(func(s *scope) {
				s.basis = &fleet.Basis{Removal: &fleet.Removal{Force: test.force, RuntimeClass: "gpus"}}
				if test.change != nil {
					test.change(s.node)
				}
				s.entry.Facts = observe.Facts(s.node)
			})
			e.fails, e.reconciler.Live = test.fails, newReader(test.live, user)
			got, err := s.removalNode(t.Context())
			e.Expect(errors.Is(err, refused)).To(Equal(test.failed), "%v", err)
			if test.want == nil {
				e.Expect(got).To(BeNil())
				return
			}
			want := test.want
			e.Expect(got.Catalogue).To(HaveLen(len(e.reconciler.Catalogue)))
			got.Catalogue = nil // It has functions.
			want.Labels, want.Kubelet = s.node.Labels, removal.Kubelet{Ready: true}
			want.Now, want.Patience, want.Cleaner = now, DefaultTiming().RemovalPatience, removal.Cleaner{Done: true}
			got.Kubelet.Since = time.Time{}
			e.Expect(got).To(Equal(want))
		})
	}
}

// keepOnly deletes the pods of all other operands.
func (e *env) keepOnly(name string) {
	e.t.Helper()
	pods := &corev1.PodList{}
	e.Expect(e.client.List(e.t.Context(), pods)).To(Succeed())
	for i := range pods.Items {
		if pods.Items[i].Name != name {
			e.Expect(e.client.Delete(e.t.Context(), &pods.Items[i])).To(Succeed())
		}
	}
}

func readyPod() *corev1.Pod {
	return &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
		{Type: corev1.PodReady, Status: corev1.ConditionTrue},
	}}}
}

// A node that has not been read does not count as done, and one that was keeps its step. Its assessment is dropped.
func TestRemovalOfANodeThatCannotBeRead(t *testing.T) {
	unread := fleet.NodeRemoval{Step: removal.Step{Action: removal.Wait, Message: "the node is being read"}}
	for want, before := range map[*fleet.NodeRemoval]*fleet.NodeRemoval{
		&unread: nil,
		{Step: removal.Step{Action: removal.Hold}}: {Step: removal.Step{Action: removal.Hold}},
	} {
		e := newEnv(t)
		e.fleet.Set(&fleet.Entry{Facts: observe.Facts(e.node()), Latest: at("Driver"), Removal: before})
		e.fleet.Publish(fleet.Basis{Removal: &fleet.Removal{}}, now)
		e.fails = map[string]error{"list": errors.New("refused")}
		_, err := e.reconcileAfter(0)
		e.Expect(err).To(MatchError(ContainSubstring("refused")))
		e.Expect(e.fleet.Get("a").Removal).To(Equal(want))
		e.Expect(e.fleet.Get("a")).To(And(HaveField("Latest", BeZero()), HaveField("BasisVersion", uint64(1))))
	}
}

// A step is one write of the condition and one of the labels, after a back-off; it is known before.
func TestStepsOfARemovalAreWritten(t *testing.T) {
	e := newEnv(t)
	e.publish()
	e.settle()
	e.fleet.Publish(fleet.Basis{Removal: &fleet.Removal{}}, now)
	e.patchErr = errors.New("refused")
	_, err := e.reconcileAfter(0)
	e.Expect(err).To(MatchError("patching condition of node a: refused"))
	step := e.fleet.Get("a").Removal.Step
	e.Expect(step.Action).To(Equal(removal.TakeOff))
	e.patchErr, e.writes = nil, 0
	e.Expect(e.reconcileAfter(0)).To(Equal(time.Second), "the back-off")
	e.Expect(e.writes).To(BeZero())
	e.Expect(e.reconcileAfter(time.Second)).To(BeZero())
	e.Expect(e.writes).To(Equal(2))
	for key := range step.Labels {
		e.Expect(e.node().Labels).NotTo(HaveKey(key))
	}
	e.Expect(e.reported()).To(Equal("False Removing"))

	// A policy that is created again ends the removal.
	e.publish()
	_, err = e.reconcileAfter(time.Second)
	e.Expect(err).NotTo(HaveOccurred())
	e.Expect(e.fleet.Get("a").Removal).To(BeNil())
}

// The condition says how far the removal has got. A step that ends only by a person has an Event.
func TestRemovalIsReported(t *testing.T) {
	earlier, since := metav1.NewTime(now.Add(-time.Hour)), metav1.NewTime(now)
	hold := removal.Step{Action: removal.Hold, Message: "held by x"}
	failed := removal.Step{Action: removal.Wait, Failed: true, Message: "it fails"}
	const held = "a: the ClusterPolicy is deleted, and the stack stays because its GPUs are in use: held by x; " +
		"end these pods, or set spec.removal.force"
	const fails = "a: the ClusterPolicy is deleted, and it fails"
	const going = "a: the ClusterPolicy is deleted, and the stack is being removed from the node"
	is := func(status corev1.ConditionStatus, reason, message string, since metav1.Time) *corev1.NodeCondition {
		return &corev1.NodeCondition{
			Type: labels.ConditionGPUReady, Status: status, Reason: reason, Message: message, LastTransitionTime: since,
		}
	}
	ready := is("True", "GPUReady", "x", earlier)
	for name, test := range map[string]struct {
		step          removal.Step
		before, after *corev1.NodeCondition
		event         string
	}{
		"no condition": {step: hold},
		"held": {
			step: hold, before: ready, after: is("True", "RemovalHeld", held, earlier), event: "RemovalHeld: " + held,
		},
		"held still": {step: hold, before: is("True", "RemovalHeld", held, earlier)},
		"held by another pod": {
			step: hold, before: is("True", "RemovalHeld", "x", earlier), after: is("True", "RemovalHeld", held, earlier),
		},
		"failed": {
			step: failed, before: ready, after: is("False", "RemovalFailed", fails, since), event: "RemovalFailed: " + fails,
		},
		"failed still": {step: failed, before: is("False", "RemovalFailed", fails, earlier)},
		"failed, shown as true": {
			step: failed, before: is("True", "RemovalFailed", fails, earlier),
			after: is("False", "RemovalFailed", fails, since),
		},
		"failed for the same, by another reason": {
			step: failed, before: is("False", "Removing", fails, earlier), after: is("False", "RemovalFailed", fails, earlier),
			event: "RemovalFailed: " + fails,
		},
		"waiting": {
			step: removal.Step{Action: removal.Wait, Message: "x"}, before: ready, after: is("False", "Removing", going, since),
		},
		"taken off": {
			step:   removal.Step{Action: removal.TakeOff, Labels: map[string]*string{"example.com/x": new("y")}},
			before: ready, after: is("False", "Removing", going, since),
		},
		"cleaned, without a condition": {
			step: removal.Step{Action: removal.Clean, Labels: map[string]*string{"example.com/x": new("y")}},
		},
		"done": {step: removal.Step{Action: removal.Done}, before: ready},
	} {
		t.Run(name, func(t *testing.T) {
			e, writes, patched := newEnv(t), 0, ""
			want := corev1.NodeCondition{}
			if test.before != nil {
				e.putCondition(*test.before)
				want = *test.before
			}
			if test.after != nil {
				want, writes, patched = *test.after, 1, "condition"
				want.LastHeartbeatTime = since
			}
			if test.step.Labels != nil {
				writes, patched = writes+1, cmp.Or(patched, "labels")
			}
			s := e.scope(func(s *scope) { s.basis = &fleet.Basis{Policy: &v1.ClusterPolicy{}} })
			s.basis.Policy.UID = "one"
			e.patchErr = errors.New("refused")
			if err := s.carryOut(t.Context(), test.step); patched == "" {
				e.Expect(err).NotTo(HaveOccurred())
			} else {
				e.Expect(err).To(MatchError("patching " + patched + " of node a: refused"))
			}
			e.patchErr, e.writes = nil, 0
			e.Expect(s.carryOut(t.Context(), test.step)).To(Succeed())
			e.Expect(e.writes).To(Equal(writes))
			e.Expect(e.condition(labels.ConditionGPUReady)).To(Equal(want))
			if test.step.Labels != nil {
				e.Expect(e.node().Labels).To(HaveKeyWithValue("example.com/x", "y"))
			}
			if test.event == "" {
				e.Expect(e.events()).To(BeEmpty())
				return
			}
			e.Expect(e.events()).To(Equal([]string{"Warning " + strings.Replace(test.event, ":", " of v1 Node a u:", 1)}))
			s.basis.Policy.UID = "two"
			s.recordRemovalEvent(t.Context(), test.after.Reason, test.after.Message)
			e.Expect(e.events()).To(HaveLen(2), "one for each policy")
		})
	}
}
