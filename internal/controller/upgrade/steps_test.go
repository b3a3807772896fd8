package upgrade

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/kube/events"
	"github.com/clusterpolicy/gpu-operator/internal/kube/freshness"
	"github.com/clusterpolicy/gpu-operator/internal/names/digest"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// What a patch changes of a Node: nothing that it has, and it removes nothing that it has not.
func TestPatchesOfANode(t *testing.T) {
	record, next := &upgrade.Record{Round: 1}, &upgrade.Record{Round: 2}
	drain, done := &upgrade.Drain{Layout: "x"}, &upgrade.Drain{Layout: "y"}
	bare := node(func(n *corev1.Node) { n.ResourceVersion = "7" })
	full := node(func(n *corev1.Node) {
		n.ResourceVersion = "7"
		n.Labels = map[string]string{
			labels.UpgradeState: "upgrade-required", labels.Pool: "p", labels.PoolKernel: "k", labels.PoolCoreOS: "c",
			labels.PoolNodePool: "n", labels.DriverAnchor: "p", "other": "x",
		}
		n.Annotations = map[string]string{
			labels.UpgradeRecord: record.Encode(), labels.UpgradeRequested: labels.True,
			labels.UpgradeInitialCordon: labels.True, labels.MIGDrain: drain.Encode(), "other": "x",
		}
	})
	type changes = map[string]any
	for name, test := range map[string]struct {
		got                 map[string]any
		labels, annotations changes
		spec                any
	}{
		"the same": {got: patchOf(full, &upgrade.Patch{State: upgrade.StateRequired, Record: record})},
		"the next round": {
			got: patchOf(full, &upgrade.Patch{
				State: upgrade.StateDrain, Record: next, RememberCordon: true, Unschedulable: new(true),
			}),
			labels: changes{labels.UpgradeState: "drain-required"}, annotations: changes{labels.UpgradeRecord: next.Encode()},
			spec: changes{"unschedulable": true},
		},
		"the end of all": {
			got: patchOf(full, &upgrade.Patch{
				EndRequest: true, ForgetCordon: true, ReleasePool: true, Unschedulable: new(false),
			}),
			labels: changes{
				labels.UpgradeState: nil, labels.Pool: nil, labels.PoolKernel: nil, labels.PoolCoreOS: nil,
				labels.PoolNodePool: nil, labels.DriverAnchor: nil,
			},
			annotations: changes{
				labels.UpgradeRecord: nil, labels.UpgradeRequested: nil, labels.UpgradeInitialCordon: nil,
			},
			spec: changes{"unschedulable": false},
		},
		"the end of nothing": {
			got: patchOf(bare, &upgrade.Patch{EndRequest: true, ForgetCordon: true, ReleasePool: true}),
		},
		"a first round": {
			got:    patchOf(bare, &upgrade.Patch{State: upgrade.StateRequired, Record: record, RememberCordon: true}),
			labels: changes{labels.UpgradeState: "upgrade-required"},
			annotations: changes{
				labels.UpgradeRecord: record.Encode(), labels.UpgradeInitialCordon: labels.True,
			},
		},
		"a layout": {
			got:         layoutPatchOf(full, &upgrade.LayoutPatch{Request: "y", Drain: done, Unschedulable: new(true)}),
			labels:      changes{labels.MIGConfig: "y", labels.MIGConfigState: nil},
			annotations: changes{labels.MIGConfigWritten: "y", labels.MIGDrain: done.Encode()},
			spec:        changes{"unschedulable": true},
		},
		"the end of a drain":  {got: layoutPatchOf(full, &upgrade.LayoutPatch{}), annotations: changes{labels.MIGDrain: nil}},
		"the end of no drain": {got: layoutPatchOf(bare, &upgrade.LayoutPatch{})},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			all := func(c changes) changes {
				if c == nil {
					return changes{}
				}
				return c
			}
			want := changes{"metadata": changes{
				"uid": "uid-a", "resourceVersion": "7", "labels": all(test.labels), "annotations": all(test.annotations),
			}}
			if test.spec != nil {
				want["spec"] = test.spec
			}
			got, err := json.Marshal(test.got)
			g.Expect(err).NotTo(HaveOccurred())
			wanted, err := json.Marshal(want)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got).To(MatchJSON(wanted))
		})
	}
}

// A transition is written with its Event first. Its version is remembered if the API server accepts it; the answer is
// if not.
func TestTransitions(t *testing.T) {
	granted := time.Unix(900, 0).UTC()
	record := &upgrade.Record{UID: "uid-a", Round: 3, State: upgrade.StateDrain, Target: "new"}
	drain := &upgrade.Drain{State: upgrade.DrainUsers, Granted: granted}
	before := node(func(n *corev1.Node) {
		n.Annotations = map[string]string{labels.UpgradeRecord: "{", labels.MIGDrain: drain.Encode()}
	})
	event := events.Event{
		Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: "a", UID: "uid-a"},
		Type:      corev1.EventTypeNormal, Reason: v1.EventDriverUpgrade, Message: "cordoned",
	}
	eventOf := func(kind, reason, transition string) []events.Event {
		of := event
		of.Type, of.Reason, of.Transition = kind, reason, transition
		return []events.Event{of}
	}
	const upgrades, layouts = "patching the driver upgrade", "patching the MIG layout"
	for name, test := range map[string]struct {
		patch  *upgrade.Patch
		layout *upgrade.LayoutPatch
		events []events.Event
		what   string
		logged string
	}{
		"a state": {
			patch:  &upgrade.Patch{State: upgrade.StateDrain, Record: record, Event: "cordoned"},
			events: eventOf("Normal", "GPUDriverUpgrade", "3 drain-required new"), what: upgrades, logged: "Driver upgrade",
		},
		"a warning": {
			patch:  &upgrade.Patch{Record: record, Event: "cordoned", Warning: true},
			events: eventOf("Warning", "GPUDriverUpgrade", "3 drain-required new"), what: upgrades, logged: "Driver upgrade",
		},
		"the end": {
			patch: &upgrade.Patch{Event: "cordoned"}, events: eventOf("Normal", "GPUDriverUpgrade", "end"),
			what: upgrades, logged: "Driver upgrade",
		},
		"without an Event": {patch: &upgrade.Patch{Record: record}, what: upgrades, logged: "Driver upgrade"},
		"of a text that is replaced": {
			patch:  &upgrade.Patch{Record: record, Event: "cordoned", Replaces: true},
			events: eventOf("Normal", "GPUDriverUpgrade", "replaces "+digest.Of("{")), what: upgrades, logged: "Driver upgrade",
		},
		"a drain": {
			layout: &upgrade.LayoutPatch{Drain: &upgrade.Drain{State: upgrade.DrainAll, Granted: granted}, Event: "cordoned"},
			events: eventOf("Normal", "GPUMIGDrain", "1970-01-01T00:15:00Z "+string(upgrade.DrainAll)+" true"),
			what:   layouts, logged: "Drain for a MIG layout",
		},
		"the end of a drain that has failed": {
			layout: &upgrade.LayoutPatch{Event: "cordoned", Warning: true},
			events: eventOf("Warning", "GPUMIGDrain", "1970-01-01T00:15:00Z "+string(upgrade.DrainUsers)+" false"),
			what:   layouts, logged: "Drain for a MIG layout",
		},
		"a layout": {layout: &upgrade.LayoutPatch{Request: "x"}, what: layouts, logged: "Requested a MIG layout"},
	} {
		for outcome, refused := range map[string]error{"accepted": nil, "refused": errInternal, "conflict": errConflict} {
			t.Run(name+" "+outcome, func(t *testing.T) {
				u := newUnit(t, interceptor.Funcs{Patch: func(
					ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, o ...client.PatchOption,
				) error {
					u := &corev1.EventList{}
					NewWithT(t).Expect(c.List(ctx, u)).To(Succeed())
					NewWithT(t).Expect(u.Items).To(HaveLen(len(test.events)), "before the patch")
					if refused != nil {
						return refused
					}
					return c.Patch(ctx, object, patch, o...)
				}}, before.DeepCopy())
				read := &corev1.Node{}
				u.Expect(u.server.Get(u.ctx, client.ObjectKey{Name: "a"}, read)).To(Succeed())
				u.observed["a"] = &observed{node: read}
				step := upgrade.Step{Node: "a", Action: upgrade.ActionPatch, Patch: test.patch, Layout: test.layout}
				if test.layout != nil {
					step.Action = upgrade.ActionLayout
				}
				u.planned.Steps = []upgrade.Step{step}
				u.carryOut(u.ctx)
				u.expectEvents(test.events...)
				after := &corev1.Node{}
				u.Expect(u.server.Get(u.ctx, client.ObjectKey{Name: "a"}, after)).To(Succeed())
				failing, _ := u.memory.failing("a", u.Now, &u.Timing)
				if refused != nil {
					u.Expect(u.memory.versions).To(BeEmpty())
					u.Expect(failing).To(Equal(map[bool]string{true: test.what + ": " + refused.Error()}[outcome == "refused"]))
					u.Expect(strings.Join(u.logged, "")).NotTo(ContainSubstring(test.logged + `"`))
					return
				}
				u.Expect(after.ResourceVersion).NotTo(Equal(read.ResourceVersion))
				u.Expect(u.memory.versions).To(Equal(freshness.Writes{"a": after.ResourceVersion}))
				u.Expect(failing).To(BeEmpty())
				u.Expect(u.logged).To(ConsistOf(ContainSubstring(test.logged + `"`)))
			})
		}
	}
}

// Steps are carried out for the nodes that were read, and are not held.
func TestNodesWithoutSteps(t *testing.T) {
	for name, of := range map[string]*observed{"not read": nil, "held": {hold: true}} {
		t.Run(name, func(t *testing.T) {
			u := newUnit(t, interceptor.Funcs{Delete: func(
				context.Context, client.WithWatch, client.Object, ...client.DeleteOption,
			) error {
				t.Error("a pod is deleted")
				return nil
			}})
			u.observed["a"] = of
			u.planned.Steps = []upgrade.Step{{
				Node: "a", Action: upgrade.ActionDeleteDriver, Pods: []upgrade.WorkloadPod{{Name: "driver"}},
			}}
			u.carryOut(u.ctx)
		})
	}
}

// The pods of a step are deleted in the operator's namespace. Those that pull images are nothing to log.
func TestDeletedPods(t *testing.T) {
	for name, test := range map[string]struct {
		action  upgrade.Action
		err     error
		logs    int
		failing string
	}{
		"a driver":              {action: upgrade.ActionDeleteDriver, logs: 1},
		"dependants":            {action: upgrade.ActionDeleteDependants, logs: 1},
		"a pull":                {action: upgrade.ActionEndPull},
		"a driver that is gone": {action: upgrade.ActionDeleteDriver, err: errNotFound},
		"a driver that stays": {
			action: upgrade.ActionDeleteDriver, err: errForbidden, logs: 1,
			failing: "deleting pod driver: " + errForbidden.Error(),
		},
	} {
		t.Run(name, func(t *testing.T) {
			deleted := 0
			u := newUnit(t, interceptor.Funcs{Delete: func(
				_ context.Context, _ client.WithWatch, object client.Object, _ ...client.DeleteOption,
			) error {
				deleted++
				NewWithT(t).Expect(client.ObjectKeyFromObject(object)).To(Equal(client.ObjectKey{Namespace: "ns", Name: "driver"}))
				return test.err
			}})
			u.observed["a"] = &observed{}
			u.planned.Steps = []upgrade.Step{{Node: "a", Action: test.action, Pods: []upgrade.WorkloadPod{{Name: "driver"}}}}
			u.carryOut(u.ctx)
			u.Expect(deleted).To(Equal(1))
			u.Expect(u.logged).To(HaveLen(test.logs))
			failing, _ := u.memory.failing("a", u.Now, &u.Timing)
			u.Expect(failing).To(Equal(test.failing))
		})
	}
}

// A pod that was rejected is not evicted before its back-off has passed, and its workload is read again after each try.
func TestEvictionsInTheirBackOff(t *testing.T) {
	timing := DefaultTiming()
	rejected := apierrors.NewForbidden(corev1.Resource("pods"), "x", errors.New("not on Mondays"))
	for name, test := range map[string]struct {
		left     time.Duration
		answer   error
		sent     bool
		requeued time.Duration
		// rejection is what is remembered after it.
		rejection string
		logs      int
		failing   string
	}{
		"in the back-off":     {left: 3 * time.Second, requeued: 3 * time.Second, rejection: "a PDB"},
		"at its end":          {sent: true, logs: 1},
		"of one that is gone": {answer: errNotFound, sent: true, rejection: "a PDB"},
		"rejected again": {answer: rejected, sent: true, requeued: 2 * timing.FirstEviction,
			rejection: "eviction rejected: " + rejected.ErrStatus.Message, logs: 1},
		"of a server that fails": {answer: errInternal, sent: true, requeued: timing.FirstRetry, rejection: "a PDB", logs: 1,
			failing: "evicting pod team/web: " + errInternal.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			sent := false
			u := newUnit(t, interceptor.Funcs{SubResourceCreate: func(
				context.Context, client.Client, string, client.Object, client.Object, ...client.SubResourceCreateOption,
			) error {
				sent = true
				return test.answer
			}})
			ago := u.Now.Add(test.left - timing.FirstEviction)
			u.memory.reject("1", refusal{text: "a PDB"}, ago, &u.Timing)
			u.memory.workloads["a"] = keptWorkload{at: u.Now}
			u.observed["a"] = &observed{}
			u.planned.Steps = []upgrade.Step{{Node: "a", Action: upgrade.ActionEvict, Pods: []upgrade.WorkloadPod{
				{Namespace: "team", Name: "web", UID: "1"},
			}}}
			u.carryOut(u.ctx)
			u.Expect(sent).To(Equal(test.sent))
			u.Expect(u.requeued()).To(Equal(test.requeued))
			u.Expect(u.memory.rejection("1").answer.text).To(Equal(test.rejection))
			u.Expect(u.memory.workloads).To(HaveLen(map[bool]int{false: 1}[sent]))
			failing, _ := u.memory.failing("a", u.Now, &u.Timing)
			u.Expect(failing).To(Equal(test.failing))
			u.Expect(u.logged).To(HaveLen(test.logs))
		})
	}
}

// The pod that pulls images is created once, and is only the operator's.
func TestPulls(t *testing.T) {
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "driver"}}
	ours := pullPod("ns", "a", ds)
	other, elsewhere, beside := ours.DeepCopy(), ours.DeepCopy(), ours.DeepCopy()
	other.Labels, elsewhere.Namespace, elsewhere.Labels, beside.Name, beside.Labels = nil, "team", nil, "beside", nil
	const changed = "its labels were changed when it was created: except it from the webhook or policy that does so"
	for name, test := range map[string]struct {
		without bool
		exist   []client.Object
		calls   interceptor.Funcs
		failing string
		left    int
	}{
		"without a DaemonSet": {without: true},
		"with one":            {left: 1},
		"beside others":       {exist: []client.Object{elsewhere, beside}, left: 3},
		"that exists":         {exist: []client.Object{ours, elsewhere, beside}, left: 3},
		"of another owner": {
			exist: []client.Object{other}, left: 1, failing: "it exists and is not the operator's: delete it",
		},
		"that cannot be read": {exist: []client.Object{ours}, left: 1, failing: errInternal.Error(), calls: failingLists},
		"that is not created": {failing: errForbidden.Error(), calls: interceptor.Funcs{Create: func(
			context.Context, client.WithWatch, client.Object, ...client.CreateOption,
		) error {
			return errForbidden
		}}},
		"whose labels are replaced": {failing: changed, calls: interceptor.Funcs{Create: relabel}},
		"whose labels are replaced, and that is gone": {failing: changed, left: 1, calls: interceptor.Funcs{
			Create: relabel, Delete: deletion(errNotFound),
		}},
		"whose labels are replaced, and that stays": {
			failing: "deleting it, as its labels were changed: " + errForbidden.Error(), left: 1,
			calls: interceptor.Funcs{Create: relabel, Delete: deletion(errForbidden)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			exist := make([]client.Object, 0, len(test.exist))
			for _, object := range test.exist {
				copied, _ := object.DeepCopyObject().(client.Object)
				exist = append(exist, copied)
			}
			u := newUnit(t, test.calls, exist...)
			u.observed["a"] = &observed{daemonSet: ds}
			if test.without {
				u.observed["a"].daemonSet = nil
			}
			u.planned.Steps = []upgrade.Step{{Node: "a", Action: upgrade.ActionPull}}
			u.carryOut(u.ctx)
			pods := &corev1.PodList{}
			u.Expect(u.server.List(u.ctx, pods)).To(Succeed())
			u.Expect(pods.Items).To(HaveLen(test.left))
			failing, _ := u.memory.failing("a", u.Now, &u.Timing)
			if test.failing != "" {
				test.failing = "creating pod " + ours.Name + ": " + test.failing
			}
			u.Expect(failing).To(Equal(test.failing))
			pulling := ContainSubstring("Pulling the images of a driver")
			switch {
			case test.without:
				u.Expect(u.logged).To(BeEmpty())
			case test.failing == "":
				u.Expect(u.logged).To(ConsistOf(pulling))
				u.Expect(u.server.Get(u.ctx, client.ObjectKeyFromObject(ours), &corev1.Pod{})).To(Succeed())
			default:
				u.Expect(u.logged).To(ConsistOf(Not(pulling)))
			}
		})
	}
}

// relabel creates an object as a webhook has changed it.
func relabel(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
	object.SetLabels(nil)
	return c.Create(ctx, object, options...)
}

// deletion answers deletions with this error.
func deletion(err error) func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
	return func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error { return err }
}
