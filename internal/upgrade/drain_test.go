package upgrade

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
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
func TestDrainSteps(t *testing.T) {
	const budget = "PDB team-a/web allows 0 disruptions"
	blocked := func(n *Node) { n.Workload.Users[0].Blocked = budget }
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
		"evicts": {action: ActionEvict},
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
			message: notReady,
		},
		"an upgrade of the driver": {
			change: func(n *Node) { n.Record = &Record{UID: n.UID, State: StateDrain, Target: "b"}; n.State = StateDrain },
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
			step := c.layout(&n).step
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

// changing is a node whose layout is requested, and after an outcome.
func changing(ended bool) func(*Node) {
	return func(n *Node) {
		n.MIG.Requested, n.MIG.Wanted, n.MIG.Ended, n.MIG.Drain.State = "b", "", ended, DrainChanging
	}
}
