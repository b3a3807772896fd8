package status

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/status/metrics"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

var (
	waits     = upgrade.Progress{State: upgrade.StateRequired}
	queued    = upgrade.Progress{State: upgrade.StateRequired, Held: true, Reason: v1.ReasonUpgradeQueued, Message: "q"}
	manual    = upgrade.Progress{State: upgrade.StateRequired, Held: true, Reason: v1.ReasonUpgradeManual, Message: "m"}
	overspent = upgrade.Progress{State: upgrade.StateRequired, Held: true, Reason: v1.ReasonUpgradeBudget, Message: "b"}
	restarts  = upgrade.Progress{State: upgrade.StatePodRestart, Since: now, Reason: v1.ReasonUpgradeRestarting}
	blocked   = upgrade.Progress{
		State: upgrade.StatePodDeletion, Since: now, Held: true, Reason: v1.ReasonUpgradeBlocked,
		Message: "PDB team-a/web allows 0 disruptions: pod team-a/web-0",
	}
	broken = upgrade.Progress{
		State: upgrade.StateFailed, Since: now, Reason: v1.ReasonUpgradeValidating, Message: "not validated after 10m",
	}
)

// setUpgrades sets the report, with the upgrades of these nodes; done are upgraded.
func (e *env) setUpgrades(done int, nodes map[int]upgrade.Progress) {
	e.upgrades = &upgrade.Report{Nodes: map[string]upgrade.Progress{}, Done: done, Target: "now"}
	for i, node := range nodes {
		e.upgrades.Nodes[e.snapshot.Nodes[i].Facts.Name] = node
		switch {
		case node.State == upgrade.StateFailed:
			e.upgrades.Failed++
			continue
		case node.State.InProgress():
			e.upgrades.InProgress++
		default:
			e.upgrades.Pending++
		}
		if node.Held {
			e.upgrades.Held++
		}
	}
}

// restartDriver makes the driver of a node start in its upgrade.
func (e *env) restartDriver(i int) {
	e.startPod(i, "driver")
	node := e.snapshot.Nodes[i].Object
	node.Annotations = map[string]string{"nvidia.com/gpu-operator.driver-upgrade": `{"state":"pod-restart-required"}`}
	e.setLabel(i, "nvidia.com/gpu-driver-upgrade-state", "pod-restart-required")
}

// The policy is not ready while a node waits for an upgrade, is being upgraded, or its upgrade has failed.
func TestUpgradesOfAPolicy(t *testing.T) {
	upgrading := notReady("UpgradePending", "Progressing")
	tests := map[string]struct {
		change  func(*env)
		want    map[string]string
		message string
	}{
		"all done": {
			change: func(e *env) { e.setUpgrades(4, nil) }, want: isReady("Reconciled"), message: "4 of 4 GPU nodes are ready",
		},
		"some wait": {
			change:  func(e *env) { e.setUpgrades(2, map[int]upgrade.Progress{1: waits, 2: queued}) },
			want:    upgrading,
			message: "2 of 4 GPU nodes wait for a driver upgrade, 0 in progress",
		},
		"one is upgraded, its GPUs still in use": {
			change: func(e *env) { e.setUpgrades(1, map[int]upgrade.Progress{1: blocked, 2: queued, 3: queued}) },
			want:   upgrading,
			message: "2 of 4 GPU nodes wait for a driver upgrade, 1 in progress; node-00001 (UpgradeBlocked): " +
				blocked.Message,
		},
		"one is upgraded, and is not ready": {
			change: func(e *env) {
				e.restartDriver(1)
				e.setUpgrades(2, map[int]upgrade.Progress{1: restarts, 2: queued})
			},
			want:    upgrading,
			message: "1 of 4 GPU nodes wait for a driver upgrade, 1 in progress",
		},
		"the last one is upgraded": {
			change: func(e *env) {
				e.restartDriver(1)
				e.setUpgrades(3, map[int]upgrade.Progress{1: restarts})
			},
			want:    upgrading,
			message: "the driver is being upgraded on 1 of 4 GPU nodes",
		},
		"after a restart of the operator": {
			change: func(e *env) { e.restartDriver(1) }, want: upgrading,
			message: "the driver is being upgraded on 1 of 4 GPU nodes",
		},
		"another node starts meanwhile": {
			change: func(e *env) {
				e.restartDriver(1)
				e.startPod(2, "driver")
				e.setUpgrades(2, map[int]upgrade.Progress{1: restarts})
			},
			want:    notReady("OperandNotReady", "Progressing"),
			message: "2 of 4 GPU nodes are ready; waiting for node-00001 (Driver: Upgrading), node-00002 (Driver: Starting)",
		},
		"one has failed, and its GPUs can be used": {
			change: func(e *env) { e.setUpgrades(3, map[int]upgrade.Progress{1: broken}) },
			want:   notReady("UpgradeFailed", "Degraded"),
			message: "the driver upgrade of 1 of 4 GPU nodes has failed: node-00001 (UpgradeValidating): " +
				"not validated after 10m",
		},
		"one has failed, and others wait": {
			change: func(e *env) {
				e.failPod(1, "driver", "")
				e.setUpgrades(2, map[int]upgrade.Progress{1: broken, 2: queued})
			},
			want: withValue(notReady("UpgradeFailed", "Degraded"), "Progressing", "True UpgradePending"),
			message: "the driver upgrade of 1 of 4 GPU nodes has failed: node-00001 (UpgradeValidating): " +
				"not validated after 10m",
		},
		"another node fails, too": {
			change: func(e *env) {
				e.failPod(2, "driver", "")
				e.setUpgrades(2, map[int]upgrade.Progress{1: broken})
			},
			want:    notReady("OperandFailed", "Degraded"),
			message: "1 of 4 GPU nodes have failed: node-00002 (Driver: CrashLoopBackOff)",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, 4)
			test.change(e)
			status := e.status()
			if diff := cmp.Diff(test.want, conditionsOf(status)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if got := ready(status).Message; got != test.message {
				t.Errorf("message\n %q, want\n %q", got, test.message)
			}
		})
	}
}

func TestUpgradeStatus(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t, 6)
	g.Expect(e.status().Upgrade).To(BeNil(), "before the first report")
	e.setUpgrades(6, nil)
	g.Expect(e.status().Upgrade).To(BeNil(), "no driver has been outdated")

	e.setUpgrades(2, map[int]upgrade.Progress{4: waits, 3: blocked, 5: broken, 2: queued})
	e.upgrades.Remaining = 95 * time.Second
	before := e.status()
	since := new(metav1.NewTime(now))
	g.Expect(before.Upgrade).To(Equal(&v1.UpgradeStatus{
		Target: "now", Pending: 2, InProgress: 1, Done: 2, Failed: 1, Held: 2, RemainingSeconds: 100,
		Message: "node-00005 (UpgradeValidating): not validated after 10m",
	}))
	g.Expect(before.NodeSummary.Upgrading).To(BeEquivalentTo(3))
	var order []string
	for _, node := range before.Nodes {
		order = append(order, node.Name)
	}
	g.Expect(order).To(Equal([]string{
		"node-00005", "node-00003", "node-00002", "node-00004", "node-00000", "node-00001",
	}))
	g.Expect(before.Nodes[1].Upgrade).To(Equal(&v1.NodeUpgradeStatus{
		State: "pod-deletion-required", Since: since, Held: true, Reason: v1.ReasonUpgradeBlocked, Message: blocked.Message,
	}))
	g.Expect(before.Nodes[3].Upgrade).To(Equal(&v1.NodeUpgradeStatus{State: "upgrade-required"}))
	g.Expect(before.Nodes[4].Upgrade).To(BeNil())

	e.upgrades.Remaining = time.Hour
	g.Expect(e.status(before).Upgrade).To(Equal(before.Upgrade), "another estimate alone causes no write")
	e.upgrades = nil
	g.Expect(e.status(before).Upgrade).To(Equal(before.Upgrade), "after a restart of the operator")
	e.setUpgrades(6, nil)
	e.upgrades.Target = ""
	g.Expect(e.status(before).Upgrade).To(Equal(&v1.UpgradeStatus{Target: "now", Done: 6}))
	e.setUpgrades(0, nil)
	g.Expect(e.status(before).Upgrade).To(BeNil(), "no node has a driver any more")
}

// The target is the image tag of the driver that has the digest.
func TestTheTargetOfUpgrades(t *testing.T) {
	e := newEnv(t, 1)
	e.spec.Driver = &v1.DriverSpec{ImageSpec: v1.ImageSpec{Version: "595.91.07"}}
	e.setUpgrades(0, map[int]upgrade.Progress{0: waits})
	in := e.input()
	for _, step := range in.Plan.Steps {
		if step.Operand.Name == "driver" {
			e.snapshot.DaemonSets["driver"].Spec.Template.Spec.Containers = []corev1.Container{{Image: step.Instances[0].Image}}
		}
	}
	if got := e.status().Upgrade.Target; got != "595.91.07-ubuntu24.04" {
		t.Errorf("the target is %q", got)
	}
	e.upgrades.Target = strings.Repeat("a", 64)
	if got := e.status().Upgrade.Target; len(got) > 12 || !strings.HasPrefix(got, "aaaaa") {
		t.Errorf("the target of an unknown digest is %q", got)
	}
}

// A hold that is explained by the budget or by a user needs no help.
func TestCountUpgrades(t *testing.T) {
	pulls := upgrade.Progress{State: upgrade.StateRequired, Held: true, Reason: v1.ReasonUpgradePullFailed}
	tests := map[string]struct {
		nodes map[int]upgrade.Progress
		want  metrics.Upgrades
	}{
		"none": {want: metrics.Upgrades{Done: 1}},
		"a rollout": {
			nodes: map[int]upgrade.Progress{0: restarts, 1: waits, 2: queued, 3: overspent},
			want:  metrics.Upgrades{Done: 1, Pending: 3, InProgress: 1, Available: 1},
		},
		"nodes of others use up the budget": {
			nodes: map[int]upgrade.Progress{0: overspent, 1: overspent}, want: metrics.Upgrades{Done: 1, Pending: 2, Held: 2},
		},
		"users have to act": {
			nodes: map[int]upgrade.Progress{0: manual, 1: blocked, 2: pulls, 3: broken},
			want:  metrics.Upgrades{Done: 1, Pending: 2, InProgress: 1, Failed: 1, Held: 2},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, 4)
			e.setUpgrades(1, test.nodes)
			if diff := cmp.Diff(test.want, CountUpgrades(e.input().View)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	e := newEnv(t, 4)
	e.restartDriver(0)
	e.pod(1, "driver").Annotations[templateDigest] = "before"
	want := metrics.Upgrades{Pending: 1, InProgress: 1}
	if diff := cmp.Diff(want, CountUpgrades(e.input().View)); diff != "" {
		t.Errorf("before the first report, -want +got:\n%s", diff)
	}
}

// Nodes whose MIG layout could not be applied are counted, without the excluded ones and those with another reason.
func TestCountMIGFailed(t *testing.T) {
	node := func(reason string, excluded bool) *fleet.Entry {
		entry := &fleet.Entry{}
		entry.Latest.State, entry.Latest.Reason, entry.Latest.Excluded = readiness.Failed, reason, excluded
		entry.Report.Assessment = entry.Latest
		return entry
	}
	view := fleet.View{Nodes: []*fleet.Entry{
		node(v1.ReasonMIGConfigFailed, false), node(v1.ReasonMIGConfigFailed, true), node(v1.ReasonGPUsMissing, false),
		node(v1.ReasonMIGConfigFailed, false),
	}}
	if got := CountMIGFailed(view); got != 2 {
		t.Errorf("got %d, want 2", got)
	}
}
