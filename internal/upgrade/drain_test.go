package upgrade

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/clusterpolicy/gpu-operator/internal/upgrade/drain"
)

// drained is a node that is drained for the layout b, since some time.
func drained(name string, ago time.Duration) Node {
	return with(wants(name), func(n *Node) {
		n.Unschedulable, n.MIG.Idle, n.MIG.Evict, n.MIG.Recorded = true, false, true, true
		n.MIG.Drain = &Drain{
			UID: n.UID, State: DrainUsers, Layout: "b", Granted: epoch.Add(-ago), Since: epoch.Add(-ago), Cordoned: true,
		}
		n.Workload = &Workload{Users: []WorkloadPod{{Namespace: "team-a", Name: "web", UID: "web"}}}
	})
}

// What the next patch of a drain leaves, by what is seen.
func TestDrainSteps(t *testing.T) { //nolint:gocyclo // It is a table with its loop.
	const budget = "PDB team-a/web allows 0 disruptions"
	blocked := func(n *Node) { n.Workload.Users[0].Blocked = budget }
	forbidden := func(lasting bool) func(*Node) {
		return func(n *Node) { n.Workload.Users = append(n.Workload.Users, notebook(lasting)) }
	}
	drains := func(p *Policy) { p.Drains, p.DrainTimeout = true, limit }
	for name, test := range map[string]struct {
		change func(*Node)
		ago    time.Duration
		policy func(*Policy)
		// action, or for ActionLayout the state that is left, its message and the request.
		action                Action
		state                 DrainState
		message, request      string
		uncordons, triesLater bool
	}{
		"evicts":                       {action: ActionEvict},
		"all that it evicts is ending": {change: func(n *Node) { n.Workload.Users[0].Ending = true }},
		"reports what blocks it": {
			change:  blocked,
			action:  ActionLayout,
			state:   DrainUsers,
			message: budget + ": pod team-a/web",
		},
		"a timeout": {
			change:     blocked,
			ago:        limit,
			action:     ActionLayout,
			state:      DrainFailed,
			message:    "podDeletion.timeoutSeconds has passed: " + budget + ": pod team-a/web",
			uncordons:  true,
			triesLater: true,
		},
		"a timeout, with drain": {
			change: blocked,
			ago:    limit,
			policy: drains,
			action: ActionLayout,
			state:  DrainAll,
		},
		"a timeout of the drain": {
			change:     func(n *Node) { blocked(n); n.MIG.Drain.State = DrainAll },
			ago:        limit,
			policy:     drains,
			action:     ActionLayout,
			state:      DrainFailed,
			message:    "drain.timeoutSeconds has passed: " + budget + ": pod team-a/web",
			uncordons:  true,
			triesLater: true,
		},
		"jobs are not waited for": {
			change: func(n *Node) { n.MIG.Drain.State = DrainJobs; n.Workload.Jobs = n.Workload.Users },
			ago:    limit,
			action: ActionLayout,
			state:  DrainUsers,
		},
		"no pod uses the GPUs": {
			change: func(n *Node) { n.Workload = &Workload{} },
			action: ActionLayout,
			state:  DrainChanging, request: "b",
		},
		"a pod that may not be evicted": {
			change:     forbidden(false),
			action:     ActionLayout,
			state:      DrainFailed,
			message:    "pod team-a/notebook " + forbiddenText,
			uncordons:  true,
			triesLater: true,
		},
		"a pod that may not be evicted, and is ending": {
			change: func(n *Node) { forbidden(true)(n); n.Workload.Users[1].Ending = true },
			action: ActionEvict,
		},
		"a pod that only a drain evicts": {
			change: forbidden(false),
			policy: drains,
			action: ActionLayout,
			state:  DrainUsers, message: "pod team-a/notebook " + forbiddenText,
		},
		"a pod that only a drain evicts, which never begins": {
			change:     forbidden(false),
			policy:     func(p *Policy) { drains(p); p.PodDeletionTimeout = 0 },
			action:     ActionLayout,
			state:      DrainFailed,
			message:    "pod team-a/notebook " + forbiddenText,
			uncordons:  true,
			triesLater: true,
		},
		"a pod that no drain evicts": {
			change:     forbidden(true),
			policy:     drains,
			action:     ActionLayout,
			state:      DrainFailed,
			message:    "pod team-a/notebook " + forbiddenText,
			uncordons:  true,
			triesLater: true,
		},
		"jobs run, but no pod uses the GPUs": {
			change: func(n *Node) {
				n.MIG.Drain.State, n.Workload = DrainJobs, &Workload{Jobs: n.Workload.Users}
			},
			action: ActionLayout,
			state:  DrainChanging, request: "b",
		},
		"another layout is wanted": {
			change: func(n *Node) { n.MIG.Wanted = "c" },
			action: ActionLayout,
			state:  DrainUsers,
		},
		"another client's uncordon": {
			change:  func(n *Node) { n.Unschedulable = false },
			action:  ActionLayout,
			state:   DrainFailed,
			message: "another client has uncordoned the node",
		},
		"its kubelet does not report": {
			change:  func(n *Node) { n.KubeletReady, n.Workload = false, nil },
			action:  ActionLayout,
			state:   DrainUsers,
			message: drain.NotReady,
		},
		"an upgrade of the driver": {
			change: func(n *Node) { n.Record = &Record{UID: n.UID, State: StateDrain, Target: "b"}; n.State = StateDrain },
		},
		"its MIG manager is off for now": {
			change:  paused,
			action:  ActionLayout,
			state:   DrainUsers,
			message: managerOff,
		},
		"its MIG manager is off for now, and no pod uses the GPUs": {
			change:  func(n *Node) { paused(n); n.Workload = &Workload{} },
			action:  ActionLayout,
			state:   DrainUsers,
			message: managerOff,
		},
		"its MIG manager is off for too long": {
			change:     paused,
			ago:        limit,
			action:     ActionLayout,
			state:      DrainFailed,
			message:    "podDeletion.timeoutSeconds has passed: " + managerOff,
			uncordons:  true,
			triesLater: true,
		},
		"its MIG manager is off for now, and jobs run": {
			change: func(n *Node) { paused(n); n.MIG.Drain.State, n.Workload.Jobs = DrainJobs, n.Workload.Users },
		},
		"its MIG manager is off for now, and no job runs any more": {
			change: func(n *Node) { paused(n); n.MIG.Drain.State, n.Workload = DrainJobs, &Workload{} },
			action: ActionLayout,
			state:  DrainUsers,
		},
		"its MIG manager is off for now, and onBusy is changed": {
			change: func(n *Node) { paused(n); n.MIG.Evict = false },
			action: ActionLayout, uncordons: true,
		},
		"its MIG manager is off for now, and the layout is requested": {
			change: func(n *Node) { changing(false)(n); paused(n) },
		},
		"its MIG manager is gone": {
			change:    func(n *Node) { changing(false)(n); paused(n); n.MIG.Off = false },
			action:    ActionLayout,
			uncordons: true,
		},
		"a stop": {change: stopped},
		"a stop, and another layout is wanted": {
			change: func(n *Node) { stopped(n); n.MIG.Wanted = "c" },
			action: ActionLayout,
		},
		"a stop, and its MIG manager is off for now": {change: func(n *Node) { stopped(n); paused(n) }},
		"a stop, and its MIG manager is gone": {
			change: func(n *Node) { stopped(n); paused(n); n.MIG.Off = false },
			action: ActionLayout,
		},
		"a state of another release": {
			change: func(n *Node) { n.MIG.Drain.State = "later" }, action: ActionLayout, uncordons: true,
		},
		"a state of another release, without a cordon": {
			change: func(n *Node) { n.MIG.Drain.State, n.MIG.Drain.Cordoned = "later", false }, action: ActionLayout,
		},
		"an outcome": {change: changing(true), action: ActionLayout, uncordons: true},
		"no outcome": {change: changing(false)},
		"no outcome in time": {
			change:    changing(false),
			ago:       limit,
			action:    ActionLayout,
			uncordons: true,
		},
		"a cordon that an upgrade has left": {change: func(n *Node) {
			changing(true)(n)
			n.Record = &Record{UID: n.UID, State: StateFailed, Cordoned: true, Restarted: true}
		}, action: ActionLayout},
	} {
		t.Run(name, func(t *testing.T) {
			n := drained("a", test.ago)
			if test.change != nil {
				test.change(&n)
			}
			policy := Policy{
				MaxParallel: 1, MaxUnavailable: intstr.FromString("100%"), JobsTimeout: limit, PodDeletionTimeout: limit,
				RetryAfter: limit, MaxRetryAfter: limit,
			}
			if test.policy != nil {
				test.policy(&policy)
			}
			c := Cluster{
				Now: epoch, Nodes: []Node{n}, Slots: Slots{"a": n.MIG.Drain.slot()}, Policies: map[string]Policy{"": policy},
			}
			step := c.layout(&n, refusal{}).step
			if step == nil || step.Action != ActionLayout {
				if (step == nil) != (test.action == "") || step != nil && step.Action != test.action {
					t.Fatalf("got %+v, want %q", step, test.action)
				}
				return
			}
			var left Drain
			if step.Layout.Drain != nil {
				left = *step.Layout.Drain
			}
			uncordons := step.Layout.Unschedulable != nil && !*step.Layout.Unschedulable
			if test.action != ActionLayout || left.State != test.state || left.Message != test.message ||
				step.Layout.Request != test.request || uncordons != test.uncordons || left.RetryAt.IsZero() == test.triesLater {
				t.Errorf("got %+v with %+v", step, step.Layout)
			}
		})
	}
}

// forbiddenText is why a notebook is not evicted.
const forbiddenText = "needs spec.driver.upgradePolicy.podDeletion.force: it has no controller"

// notebook is a pod that podDeletion forbids to evict, and if it is lasting also a drain.
func notebook(lasting bool) WorkloadPod {
	return WorkloadPod{
		Namespace: "team-a", Name: "notebook", UID: "notebook", Blocked: forbiddenText, Forbidden: true, Lasting: lasting,
	}
}

// What a node with a slot does before it is cordoned, by the pods that use its GPUs.
func TestDrainBegins(t *testing.T) {
	web := WorkloadPod{Namespace: "team-a", Name: "web", UID: "web"}
	ending := notebook(true)
	ending.Ending = true
	for name, test := range map[string]struct {
		workload Workload
		before   *Drain
		policy   Policy
		state    DrainState
		failures int
	}{
		"pods that may be evicted": {workload: Workload{Users: []WorkloadPod{web}}, state: DrainUsers},
		"a pod that may not": {
			workload: Workload{Users: []WorkloadPod{web, notebook(false)}}, state: DrainFailed, failures: 1,
		},
		"one that is ending": {workload: Workload{Users: []WorkloadPod{web, ending}}, state: DrainUsers},
		"one that a drain evicts": {
			workload: Workload{Users: []WorkloadPod{web, notebook(false)}}, policy: Policy{Drains: true}, state: DrainUsers,
		},
		"one that a drain does not evict": {
			workload: Workload{Users: []WorkloadPod{web, notebook(true)}}, policy: Policy{Drains: true}, state: DrainFailed,
			failures: 1,
		},
		"one that is waited for": {
			workload: Workload{Users: []WorkloadPod{web, notebook(true)}, Jobs: []WorkloadPod{notebook(false)}},
			policy:   Policy{WaitsForJobs: true}, state: DrainJobs,
		},
		"one that is not, beside a job": {
			workload: Workload{Users: []WorkloadPod{web, notebook(true)}, Jobs: []WorkloadPod{web}},
			policy:   Policy{WaitsForJobs: true}, state: DrainFailed, failures: 1,
		},
		"once more": {
			workload: Workload{Users: []WorkloadPod{web, notebook(false)}},
			before:   &Drain{State: DrainFailed, Layout: "b", Since: epoch, Failures: 1, RetryAt: epoch},
			state:    DrainFailed, failures: 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := with(wants("a"), func(n *Node) {
				n.MIG.Idle, n.MIG.Evict, n.MIG.Drain, n.MIG.Recorded = false, true, test.before, test.before != nil
				n.Workload = &test.workload
				if test.before != nil {
					test.before.UID = n.UID
				}
			})
			policy := test.policy
			policy.PodDeletionTimeout, policy.RetryAfter, policy.MaxRetryAfter = limit, limit, limit
			c := Cluster{
				Now: epoch, Nodes: []Node{n}, Policies: map[string]Policy{"": policy},
				Slots: Slots{"a": {UID: n.UID, Layout: "b", Since: epoch}},
			}
			step := c.layout(&n, refusal{}).step
			if step == nil || step.Layout == nil || step.Layout.Drain == nil {
				t.Fatalf("got %+v, want the state %s", step, test.state)
			}
			left, cordons := step.Layout.Drain, step.Layout.Unschedulable != nil
			message, retryAt := "", time.Time{}
			if test.state == DrainFailed {
				message, retryAt = "pod team-a/notebook "+forbiddenText, epoch.Add(limit)
			}
			want := Drain{
				UID: n.UID, State: test.state, Layout: "b", Granted: epoch, Since: epoch, Cordoned: cordons, Message: message,
				Failures: test.failures, RetryAt: retryAt,
			}
			if *left != want || cordons == (test.state == DrainFailed) {
				t.Errorf("got %+v and %t, want %+v", *left, cordons, want)
			}
		})
	}
}

// paused is a node whose MIG manager is off for now.
func paused(n *Node) { n.MIG.Partitioned, n.MIG.Off, n.MIG.Wanted = false, true, "" }

// stopped is a node whose drain another client has stopped.
func stopped(n *Node) {
	n.Unschedulable, n.MIG.Drain.Cordoned, n.MIG.Drain.State = false, false, DrainFailed
}

// A record that is no JSON may be that of a cordon, so it stays, and the layout waits.
func TestUnreadableDrain(t *testing.T) {
	n := with(wants("a"), func(n *Node) { n.MIG.Evict, n.MIG.Recorded, n.MIG.Unreadable = true, true, true })
	c := Cluster{
		Now: epoch, Nodes: []Node{n}, Policies: map[string]Policy{"": {MaxParallel: 1, MaxUnavailable: intstr.FromInt32(1)}},
	}
	if plan := c.Plan(); plan.Slots != nil || len(plan.Steps) > 0 {
		t.Errorf("got slots %+v and steps %+v", plan.Slots, plan.Steps)
	}
	n.MIG.Unreadable = false
	c.Nodes = []Node{n}
	if step := c.layout(&n, refusal{}).step; step == nil || step.Layout.Drain != nil || step.Layout.Unschedulable != nil {
		t.Errorf("got %+v, want the record of a deleted Node removed", step)
	}
}

// A drain that failed is tried again now if its record has a time that no retry is scheduled for.
func TestARetryOfADrainInTheFarFuture(t *testing.T) {
	for name, test := range map[string]struct {
		retryAt time.Time
		until   time.Time
	}{
		"later":                {epoch.Add(time.Hour), epoch.Add(time.Hour)},
		"in the far future":    {farFuture, time.Time{}},
		"later than any other": {epoch.Add(2*time.Hour + time.Nanosecond), time.Time{}},
		"due":                  {epoch, time.Time{}},
		"never by time":        {time.Time{}, time.Time{}},
		"as late as any other": {epoch.Add(2 * time.Hour), epoch.Add(2 * time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			n := with(evictable("n"), func(n *Node) {
				n.MIG.Recorded = true
				n.MIG.Drain = &Drain{UID: n.UID, State: DrainFailed, Layout: "b", Since: epoch, Failures: 1, RetryAt: test.retryAt}
			})
			c := Cluster{Now: epoch, Nodes: []Node{n}, Policies: map[string]Policy{"": {
				MaxParallel: 1, MaxUnavailable: intstr.FromInt32(0), RetryAfter: time.Minute, MaxRetryAfter: time.Hour,
			}}}
			plan := c.Plan()
			if plan.Slots != nil || len(plan.Steps) > 0 || !plan.Until.Equal(test.until) {
				t.Errorf("got slots %v and steps %v until %s, want none until %s", plan.Slots, plan.Steps, plan.Until, test.until)
			}
		})
	}
}

// changing is a node whose layout is requested, and after an outcome.
func changing(ended bool) func(*Node) {
	return func(n *Node) {
		n.MIG.Requested, n.MIG.Wanted, n.MIG.Ended, n.MIG.Drain.State = "b", "", ended, DrainChanging
	}
}
