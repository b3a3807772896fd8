package upgrade

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// slotsObject is the ConfigMap with these slots.
func slotsObject(change func(*corev1.ConfigMap)) *corev1.ConfigMap {
	object := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: labels.UpgradeSlots, UID: "7",
			Labels: map[string]string{labels.ManagedBy: labels.ManagedByValue},
		},
		Data: upgrade.Slots{"a": {UID: "1", Round: 1}}.Encode(),
	}
	if change != nil {
		change(object)
	}
	return object
}

// The slots are read if there may be some or a node needs one. Without them no upgrade starts, for a reason.
func TestSlotsAreRead(t *testing.T) {
	timing := DefaultTiming()
	required := []upgrade.Node{{Name: "a", Record: &upgrade.Record{State: upgrade.StateRequired}}}
	slot := upgrade.Slots{"a": {UID: "1", Round: 1}}
	const name = labels.UpgradeSlots
	for what, test := range map[string]struct {
		object  *corev1.ConfigMap
		answer  error
		mayHave bool
		nodes   []upgrade.Node

		unread   bool
		slots    upgrade.Slots
		conflict string
		reason   string
		has      bool
		requeued time.Duration
		err      string
		logs     int
		// refused: a refusal that was remembered still is.
		refused bool
	}{
		"which none needs":       {object: slotsObject(nil), unread: true, refused: true},
		"of an earlier operator": {object: slotsObject(nil), mayHave: true, slots: slot, has: true},
		"which a node needs":     {object: slotsObject(nil), nodes: required, slots: slot, has: true},
		"none":                   {mayHave: true},
		"of a user": {
			object: slotsObject(func(c *corev1.ConfigMap) { c.Labels = nil }), mayHave: true, requeued: timing.LastRetry,
			conflict: "ConfigMap " + name + " exists and is not the operator's: rename or delete it",
		},
		"which cannot be changed": {
			object: slotsObject(func(c *corev1.ConfigMap) { c.Immutable = new(true) }), mayHave: true,
			conflict: "ConfigMap " + name + " is immutable: delete it",
		},
		"which can be changed": {
			object: slotsObject(func(c *corev1.ConfigMap) { c.Immutable = new(false) }), mayHave: true, slots: slot, has: true,
		},
		"which are unreadable": {
			object: slotsObject(func(c *corev1.ConfigMap) { c.Data = map[string]string{"b": "?"} }), mayHave: true, logs: 1,
		},
		"which are refused": {
			answer: errForbidden, mayHave: true, has: true, requeued: timing.LastRetry, reason: v1.ReasonReconcileFailed,
			conflict: "reading ConfigMap " + name + ": " + errForbidden.Error(), logs: 1, refused: true,
		},
		"which fail": {
			answer: errInternal, mayHave: true, has: true, refused: true,
			err: "reading ConfigMap " + name + ", which has the nodes that may be upgraded: " + errInternal.Error(),
		},
	} {
		t.Run(what, func(t *testing.T) {
			reads := 0
			var exist []client.Object
			if test.object != nil {
				exist = append(exist, test.object)
			}
			u := newUnit(t, interceptor.Funcs{Get: func(
				ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, o ...client.GetOption,
			) error {
				reads++
				_, limited := ctx.Deadline()
				NewWithT(t).Expect(limited).To(BeTrue())
				if test.answer != nil {
					return test.answer
				}
				return c.Get(ctx, key, object, o...)
			}}, exist...)
			u.memory.mayHaveSlots, u.cluster.Nodes = test.mayHave, test.nodes
			u.Reconciler.memory.refused = slotsRefusal{doing: readsSlots, reason: "x", answer: answerAt(u.Now)}
			err := u.refreshSlots(u.ctx)
			if test.err == "" {
				u.Expect(err).NotTo(HaveOccurred())
			} else {
				u.Expect(err).To(MatchError(test.err))
			}
			u.Expect(reads).To(Equal(map[bool]int{false: 1}[test.unread]))
			u.Expect(u.cluster.Slots).To(And(Not(BeNil()), HaveLen(len(test.slots))))
			for node, slot := range test.slots {
				u.Expect(u.cluster.Slots).To(HaveKeyWithValue(node, slot))
			}
			u.Expect(u.cluster.SlotsConflict).To(Equal(test.conflict))
			u.Expect(u.cluster.SlotsReason).To(Equal(test.reason))
			u.Expect(u.memory.mayHaveSlots).To(Equal(test.has))
			u.Expect(u.requeued()).To(Equal(test.requeued))
			u.Expect(u.logged).To(HaveLen(test.logs))
			u.Expect(test.refused).To(Equal(u.RefusedSlots() != ""))
			u.Expect(u.slots != nil).To(Equal(len(test.slots) > 0 || what == "which are unreadable"))
		})
	}
}

func answerAt(now time.Time) answer { return answer{text: "no", since: now} }

// The slots are written as they are planned, and not over those that were not read.
func TestSlotsAreWritten(t *testing.T) {
	timing := DefaultTiming()
	slots := upgrade.Slots{"b": {UID: "2", Round: 1}}
	ending := slotsObject(func(c *corev1.ConfigMap) {
		c.Finalizers, c.DeletionTimestamp = []string{"example.com/backup"}, new(metav1.Now())
	})
	const name = labels.UpgradeSlots
	for what, test := range map[string]struct {
		planned upgrade.Slots
		read    *corev1.ConfigMap
		// conflict is why no slot is granted already.
		conflict string
		answer   error

		calls    []string
		left     map[string]string
		has      bool
		requeued time.Duration
		refused  bool
		err      string
		// replanned: the plan is that without slots.
		replanned bool
	}{
		"as they are": {read: slotsObject(nil), left: slotsObject(nil).Data, has: true},
		"not at all: a conflict": {
			read: slotsObject(nil), conflict: "x", left: slotsObject(nil).Data, has: true, refused: true,
		},
		"first": {
			planned: slots, calls: []string{"create"}, left: slots.Encode(), has: true, requeued: timing.Debounce,
		},
		"none where there is none": {planned: upgrade.Slots{}, requeued: timing.Debounce},
		"others": {
			planned: slots, read: slotsObject(nil), calls: []string{"patch"}, left: slots.Encode(), has: true,
			requeued: timing.Debounce,
		},
		"none": {planned: upgrade.Slots{}, read: slotsObject(nil), calls: []string{"delete"}, requeued: timing.Debounce},
		"none while a finalizer keeps it": {
			planned: upgrade.Slots{}, read: ending, calls: []string{"patch"}, left: map[string]string{},
			requeued: timing.Debounce,
		},
		"others while a finalizer keeps it": {
			planned: slots, read: ending, calls: []string{"patch"}, left: slots.Encode(), has: true, requeued: timing.Debounce,
		},
		"which is refused": {
			planned: slots, calls: []string{"create"}, answer: errForbidden, has: true, requeued: timing.LastRetry,
			refused: true, replanned: true,
		},
		"which fails": {
			planned: slots, read: slotsObject(nil), calls: []string{"patch"}, answer: errInternal, left: slotsObject(nil).Data,
			has: true, refused: true,
			err: "writing ConfigMap " + name + ", which has the nodes that may be upgraded: " + errInternal.Error(),
		},
		"which fails to be deleted": {
			planned: upgrade.Slots{}, read: slotsObject(nil), calls: []string{"delete"}, answer: errInternal,
			left: slotsObject(nil).Data, has: true, refused: true,
			err: "writing ConfigMap " + name + ", which has the nodes that may be upgraded: " + errInternal.Error(),
		},
	} {
		t.Run(what, func(t *testing.T) {
			var calls []string
			call := func(what string, do func() error) error {
				if calls = append(calls, what); test.answer != nil {
					return test.answer
				}
				return do()
			}
			var exist []client.Object
			if test.read != nil {
				exist = append(exist, test.read.DeepCopy())
			}
			u := newUnit(t, interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, object client.Object, o ...client.CreateOption) error {
					return call("create", func() error { return c.Create(ctx, object, o...) })
				},
				Patch: func(
					ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, o ...client.PatchOption,
				) error {
					return call("patch", func() error { return c.Patch(ctx, object, patch, o...) })
				},
				Delete: func(ctx context.Context, c client.WithWatch, object client.Object, o ...client.DeleteOption) error {
					return call("delete", func() error { return c.Delete(ctx, object, o...) })
				},
			}, exist...)
			if test.read != nil {
				u.slots = &corev1.ConfigMap{}
				u.Expect(u.server.Get(u.ctx, u.keyOf(name), u.slots)).To(Succeed())
			}
			u.planned.Slots, u.cluster.SlotsConflict = test.planned, test.conflict
			u.memory.mayHaveSlots = true
			u.Reconciler.memory.refused = slotsRefusal{doing: writesSlots, reason: "x", answer: answerAt(u.Now)}
			err := u.writeSlots(u.ctx)
			if test.err == "" {
				u.Expect(err).NotTo(HaveOccurred())
			} else {
				u.Expect(err).To(MatchError(test.err))
			}
			u.Expect(calls).To(Equal(test.calls))
			u.Expect(u.memory.mayHaveSlots).To(Equal(test.has))
			u.Expect(u.requeued()).To(Equal(test.requeued))
			u.Expect(test.refused).To(Equal(u.RefusedSlots() != ""))
			u.Expect(u.planned.Report.Nodes != nil).To(Equal(test.replanned))
			found := &corev1.ConfigMap{}
			err = u.server.Get(u.ctx, u.keyOf(name), found)
			u.Expect(err != nil).To(Equal(test.left == nil))
			u.Expect(found.Data).To(HaveLen(len(test.left)))
			for key, value := range test.left {
				u.Expect(found.Data).To(HaveKeyWithValue(key, value))
				u.Expect(found.Labels).To(Equal(map[string]string{labels.ManagedBy: labels.ManagedByValue}))
			}
		})
	}
}

// Slots that another manager has written since they were read are not overwritten.
func TestSlotsOfAnotherManagerStay(t *testing.T) {
	u := newUnit(t, interceptor.Funcs{}, slotsObject(nil))
	u.slots = slotsObject(func(c *corev1.ConfigMap) { c.ResourceVersion = "5" })
	u.planned.Slots = upgrade.Slots{"b": {}}
	result, err := u.endWithoutSlots(u.writeSlots(u.ctx))
	u.Expect(err).NotTo(HaveOccurred())
	u.Expect(result.RequeueAfter).To(Equal(u.Timing.RetryStale))
}

// A node whose upgrade is over needs no slot.
func TestNodesThatNeedSlots(t *testing.T) {
	ready := upgrade.Node{KubeletReady: true}
	wants, drains := ready, ready
	wants.MIG.Wanted, drains.MIG.Drain = "x", &upgrade.Drain{}
	for name, test := range map[string]struct {
		node upgrade.Node
		want bool
	}{
		"at rest":            {node: ready},
		"one is done":        {node: upgrade.Node{Record: &upgrade.Record{State: upgrade.StateDone}}},
		"one has an upgrade": {upgrade.Node{Record: &upgrade.Record{State: upgrade.StateFailed}}, true},
		"one wants a layout": {wants, true},
		"one is drained":     {drains, true},
	} {
		s := &scope{cluster: upgrade.Cluster{Nodes: []upgrade.Node{ready, test.node}}}
		if got := s.needsSlots(); got != test.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}

// A pass that cannot write the slots carries out no step. Its error is returned.
func TestPassWhoseSlotsFail(t *testing.T) {
	for answer, requeued := range map[error]time.Duration{errInternal: 0, errConflict: DefaultTiming().RetryStale} {
		patches := 0
		u := newUnit(t, interceptor.Funcs{
			Patch: func(
				_ context.Context, _ client.WithWatch, object client.Object, _ client.Patch, _ ...client.PatchOption,
			) error {
				if object.GetName() == labels.UpgradeSlots {
					return answer
				}
				patches++
				return nil
			},
			Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error { return answer },
		}, slotsObject(nil), node(func(n *corev1.Node) {
			record := upgrade.Record{UID: n.UID, Round: 1, State: upgrade.StateDrain, Cordoned: true}
			n.Annotations, n.Spec.Unschedulable = map[string]string{labels.UpgradeRecord: record.Encode()}, true
			n.Labels = map[string]string{labels.UpgradeState: "drain-required"}
		}))
		u.managed("a").Facts.HasGPU = false
		result, err := u.run(u.ctx)
		u.Expect(err != nil).To(Equal(requeued == 0), "%v", err)
		u.Expect(result).To(Equal(ctrl.Result{RequeueAfter: requeued}))
		u.Expect(u.Fleet.View().Upgrades).NotTo(BeNil())
		u.Expect(patches).To(BeZero())
		u.planned.Slots = nil
		u.carryOut(u.ctx)
		u.Expect(patches).To(Equal(1), "a step was planned")
	}
}

// Of the operands, the driver, what is validated after it, and what needs it on its node concern a plan.
func TestOperandsOfAPlan(t *testing.T) {
	needs := func(on operand.Name) []operand.Requirement {
		return []operand.Requirement{{On: on, Scope: operand.Node}}
	}
	concerns := New(Options{Catalogue: operand.Catalogue{
		{Name: "driver", UpdatesOnDelete: true}, {Name: "toolkit", Requires: needs("driver")},
		{Name: "plugin", Requires: needs("toolkit")}, {Name: "other"}, {Name: "exporter", Requires: needs("other")},
		{Name: "validator", Stage: v1.StageValidated},
	}}).concerns()
	var found []string
	for _, name := range []string{"driver", "toolkit", "plugin", "other", "exporter", "validator", "unknown"} {
		if concerns(name) {
			found = append(found, name)
		}
	}
	NewWithT(t).Expect(found).To(Equal([]string{"driver", "toolkit", "plugin", "validator"}))
}

// refusing is a manager that takes no controller.
type refusing struct{ manager.Manager }

func (refusing) Add(manager.Runnable) error { return errors.New("it is stopped") }

// A controller that the manager does not take is an error.
func TestSetupFails(t *testing.T) {
	g := NewWithT(t)
	mgr, err := ctrl.NewManager(&rest.Config{}, ctrl.Options{
		Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)},
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(New(Options{Fleet: fleet.New()}).SetupWithManager(refusing{mgr})).To(MatchError("it is stopped"))
}

// At most 8 nodes are read or changed simultaneously, and at least as many.
func TestCallsAtATime(t *testing.T) {
	for name, act := range map[string]func(*unit){
		"steps":     func(u *unit) { u.carryOut(u.ctx) },
		"workloads": func(u *unit) { u.refreshWorkloads(u.ctx) },
		"tenants":   func(u *unit) { u.refreshTenants(u.ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				running, most, calls := 0, 0, 0
				count := func(by int) {
					mu.Lock()
					defer mu.Unlock()
					running += by
					most, calls = max(most, running), calls+max(by, 0)
				}
				hold := func() {
					count(1)
					time.Sleep(time.Second)
					count(-1)
				}
				u := newUnit(t, interceptor.Funcs{
					List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
						hold()
						return nil
					},
					Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
						hold()
						return nil
					},
				})
				u.cluster.Policies, u.cluster.Now = u.policies(), u.Now
				policy := u.cluster.Policies[""]
				policy.MaxParallel, policy.MaxUnavailable.IntVal = 0, 100
				u.cluster.Policies[""] = policy
				for i := range 20 {
					node := "node-" + string(rune('a'+i))
					u.managed(node)
					u.observed[node] = &observed{node: &corev1.Node{}}
					u.planned.Steps = append(u.planned.Steps, upgrade.Step{
						Node: node, Action: upgrade.ActionDeleteDriver, Pods: []upgrade.WorkloadPod{{Name: "driver"}},
					})
					of := upgrade.Node{Name: node, Installs: true, KubeletReady: true, GPUReady: true}
					if name == "tenants" {
						of.MIG = upgrade.MIG{Partitioned: true, Wanted: "x"}
					} else {
						of.Record = &upgrade.Record{State: upgrade.StateWaitForJobs}
					}
					u.cluster.Nodes = append(u.cluster.Nodes, of)
				}
				act(u)
				u.Expect(calls).To(Equal(20))
				u.Expect(most).To(Equal(8))
			})
		})
	}
}
