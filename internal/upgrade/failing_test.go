package upgrade

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// waitFor returns a cluster in which the node a has the only slot, and the node b waits for it, by a policy with these
// steps.
func waitFor(a Node, now time.Time, policy Policy) Cluster {
	policy.Auto, policy.MaxParallel, policy.MaxUnavailable = true, 1, intstr.FromInt32(2)
	policy.RetryAfter, policy.MaxRetryAfter = 10*time.Minute, time.Hour
	return Cluster{
		Now: now, Nodes: []Node{a, queued("b")}, Slots: Slots{"a": {UID: "u", Round: 1}},
		Policies: map[string]Policy{"": policy},
	}
}

// The API server refuses the pod that pulls images on the node a for good. The node names that, and gives its place
// back after five minutes, for ten minutes.
func TestARefusedPullHoldsNoOther(t *testing.T) {
	const refused = "creating pod p: exceeded quota: pods"
	g := NewWithT(t)
	a := queued("a")
	a.Failing, a.FailingSince, a.Workload = refused, epoch, &Workload{}
	c := waitFor(a, epoch.Add(4*time.Minute), Policy{PullImages: true, PullTimeout: time.Hour})
	plan := c.Plan()
	g.Expect(plan.Steps).To(ConsistOf(HaveField("Action", ActionPull)), "it is tried until then")
	g.Expect(plan.Report.Nodes["a"]).To(And(
		HaveField("Held", true), HaveField("Reason", v1.ReasonReconcileFailed), HaveField("Message", refused)))
	g.Expect(plan.Until).To(Equal(epoch.Add(5 * time.Minute)))

	c.Now = plan.Until
	plan = c.Plan()
	g.Expect(plan.Steps).To(HaveLen(1))
	record := plan.Steps[0].Patch.Record
	g.Expect(*record).To(And(HaveField("State", StateRequired), HaveField("Reason", v1.ReasonReconcileFailed),
		HaveField("Message", refused), HaveField("RetryAt", c.Now.Add(10*time.Minute))))
	c.Nodes[0].Record, c.Nodes[0].Failing = record, ""
	plan = c.Plan()
	g.Expect(plan.Slots).To(And(HaveLen(1), HaveKey("b")))
	g.Expect(plan.Report.Nodes["a"]).To(And(HaveField("Held", true), HaveField("Message", refused)))
}

// The API server refuses every patch of the node a, such as at the limit of its annotations. It cannot give back its
// slot, which stays for other managers, but has no place in the budget after ten minutes, and asks for one again.
func TestRefusedPatchesHoldNoOther(t *testing.T) {
	const refused = "patching the driver upgrade: annotations are too long"
	g := NewWithT(t)
	a := queued("a")
	a.Failing, a.FailingSince, a.Workload = refused, epoch, &Workload{}
	c := waitFor(a, epoch.Add(10*time.Minute-time.Second), Policy{})
	g.Expect(c.Plan().Slots).To(BeNil())

	c.Now = epoch.Add(10 * time.Minute)
	plan := c.Plan()
	g.Expect(plan.Slots).To(And(HaveLen(2), HaveKey("a"), HaveKey("b")))
	g.Expect(plan.Steps).To(ConsistOf(HaveField("Patch.Record.Reason", v1.ReasonReconcileFailed)), "it does not begin")
	g.Expect(plan.Report.Nodes["a"]).To(And(HaveField("Held", true), HaveField("Message", refused)))

	// The patches succeed again, before any of them was.
	c.Slots = plan.Slots
	c.Nodes[0].Failing, c.Nodes[1].Workload = "", &Workload{}
	begun := 0
	for _, step := range c.Plan().Steps {
		if step.Patch.State.InProgress() {
			begun++
		}
	}
	g.Expect(begun).To(Equal(1))
}

// A node that waits for its place goes on waiting while calls for it fail: it holds no other.
func TestAFailingNodeWithoutAPlaceWaits(t *testing.T) {
	g := NewWithT(t)
	a, b := queued("a"), queued("b")
	a.Failing, a.FailingSince = "reading the pods: denied", epoch
	c := Cluster{
		Now: epoch.Add(time.Hour), Nodes: []Node{a, b}, Slots: Slots{"b": {UID: "u", Round: 1}},
		Policies: map[string]Policy{"": {Auto: true, MaxParallel: 1, MaxUnavailable: intstr.FromInt32(2)}},
	}
	plan := c.Plan()
	g.Expect(plan.Steps).To(BeEmpty())
	g.Expect(plan.Report.Nodes["a"].Reason).To(Equal(v1.ReasonUpgradeQueued))
}

// A retry is no Event: its outcome is one.
func TestARetryOfAPullIsNoEvent(t *testing.T) {
	g := NewWithT(t)
	n := queued("a")
	n.Record.Reason, n.Record.Message, n.Record.RetryAt = v1.ReasonUpgradePullFailed, "no such image", epoch
	plan := (&Cluster{Now: epoch, Nodes: []Node{n}, Policies: map[string]Policy{"": {
		Auto: true, PullImages: true, MaxParallel: 1, MaxUnavailable: intstr.FromInt32(1),
	}}}).Plan()
	g.Expect(plan.Steps).To(HaveLen(1))
	g.Expect(plan.Steps[0].Patch).To(And(HaveField("Event", ""), HaveField("Record.Reason", "")))
}

// A finalizer of another client keeps the pull pod of an earlier target on the node a.
func TestAPullPodThatDoesNotEndHoldsNoOther(t *testing.T) {
	g := NewWithT(t)
	a := queued("a")
	a.Pull = &Pod{Name: "pull", Digest: "v0", Ending: true, EndsAt: epoch}
	c := waitFor(a, epoch, Policy{PullImages: true})
	plan := c.Plan()
	g.Expect(plan.Steps).To(BeEmpty())
	g.Expect(plan.Until).To(Equal(epoch.Add(5 * time.Minute)))

	c.Now = plan.Until
	plan = c.Plan()
	g.Expect(plan.Steps).To(HaveLen(1))
	record := plan.Steps[0].Patch.Record
	g.Expect(*record).To(And(HaveField("State", StateRequired), HaveField("Reason", v1.ReasonUpgradePullFailed),
		HaveField("Message", "pull pod pull does not end: remove its finalizers")))
	c.Nodes[0].Record = record
	g.Expect(c.Plan().Slots).To(And(HaveLen(1), HaveKey("b")))
}

// A node boots while the pull pod of an earlier target ends on it, and is gone for longer than that pod may take. No
// kubelet could end it meanwhile: its time begins once the node reports again, but not by a node that boots for ever.
func TestARebootDoesNotFailAPull(t *testing.T) {
	for name, test := range map[string]struct{ ready, until time.Duration }{
		"a boot of 7 minutes":             {ready: 7 * time.Minute, until: 12 * time.Minute},
		"a boot before the pod was ended": {ready: -time.Hour, until: 5 * time.Minute},
		"the last of many boots":          {ready: 19 * time.Minute, until: 20 * time.Minute},
	} {
		for state, n := range map[State]Node{StateRequired: queued("a"), StatePodRestart: restarts()} {
			t.Run(name+" "+string(state), func(t *testing.T) {
				g := NewWithT(t)
				n.Pull = &Pod{Name: "pull", Digest: "v0", Ending: true, EndsAt: epoch}
				n.ReadySince = epoch.Add(test.ready)
				c := waitFor(n, epoch.Add(max(0, test.ready)), Policy{PullImages: true})
				plan := c.Plan()
				g.Expect(plan.Steps).To(BeEmpty())
				g.Expect(plan.Until).To(Equal(epoch.Add(test.until)))
				c.Now = plan.Until
				g.Expect(c.Plan().Steps).To(ConsistOf(HaveField("Patch.Record.Message",
					ContainSubstring("pull pod pull does not end"))))
			})
		}
	}
}

// The API server refuses to delete the driver pod of a node for good: the deadline of the state holds.
func TestARefusedDeletionHasADeadline(t *testing.T) {
	g := NewWithT(t)
	n := upToDate("a")
	n.Driver, n.Unschedulable, n.State = &Pod{Name: "driver", UID: "d", Digest: "v1", Ready: true}, true, StatePodRestart
	n.Record = &Record{
		UID: "u", Round: 1, State: StatePodRestart, Since: epoch, Target: "v2", DriverPod: "d", Cordoned: true,
	}
	n.Workload, n.Failing = &Workload{}, "deleting pod driver: denied"
	c := Cluster{Now: epoch, Nodes: []Node{n}, Policies: map[string]Policy{"": {
		Auto: true, DriverTimeout: time.Hour, RetryAfter: time.Minute, MaxRetryAfter: time.Hour,
	}}}
	plan := c.Plan()
	g.Expect(plan.Steps).To(ConsistOf(HaveField("Action", ActionDeleteDriver)))
	g.Expect(plan.Report.Nodes["a"]).To(And(HaveField("Held", true), HaveField("Message", n.Failing)))
	g.Expect(plan.Until).To(Equal(epoch.Add(time.Hour)))

	c.Now = plan.Until
	plan = c.Plan()
	g.Expect(plan.Steps).To(HaveLen(1))
	g.Expect(plan.Steps[0].Patch).To(And(HaveField("State", StateFailed),
		HaveField("Unschedulable", HaveValue(BeFalse()))))
	g.Expect(plan.Steps[0].Patch.Record.Message).To(ContainSubstring(n.Failing))
	g.Expect(plan.Steps[0].Patch.Warning).To(BeTrue(), "its Event is a warning")
}

// The pods on the cordoned node a cannot be read for good, or the pod is refused that pulls the images of a target that
// was edited meanwhile, where no state has a limit: its old driver works, and other nodes wait 15 minutes for it.
func TestFailingReadsAndPullsHaveADeadline(t *testing.T) {
	for _, state := range []State{StateWaitForJobs, StatePodDeletion, StateDrain, StatePodRestart} {
		for what, pulled := range map[string]string{"reads": "v2", "pulls": "v1.5"} {
			t.Run(string(state)+" "+what, func(t *testing.T) {
				g := NewWithT(t)
				a := queued("a")
				a.Driver.UID, a.State, a.Unschedulable = "d", state, true
				a.Failing, a.FailingSince = what+": denied", epoch
				a.Record = &Record{
					UID: "u", Round: 1, State: state, Since: epoch, Target: "v2", Cordoned: true, DriverPod: "d", Pulled: pulled,
				}
				if what == "pulls" {
					a.Workload = &Workload{Users: []WorkloadPod{{Name: "p", UID: "p"}}, Jobs: []WorkloadPod{{Name: "p", UID: "p"}}}
				}
				c := waitFor(a, epoch, Policy{WaitsForJobs: true, PullImages: true})
				plan := c.Plan()
				g.Expect(plan.Steps).NotTo(ContainElement(HaveField("Action", ActionPatch)))
				reported := a.Failing
				if what == "pulls" {
					reported = "waits for the new images: pulls: denied"
				}
				g.Expect(plan.Report.Nodes["a"]).To(And(HaveField("Held", true), HaveField("Message", reported)))
				g.Expect(plan.Until).To(Equal(epoch.Add(15 * time.Minute)))

				c.Now = plan.Until
				plan = c.Plan()
				g.Expect(plan.Steps).To(HaveLen(1))
				patch := plan.Steps[0].Patch
				g.Expect(patch).To(And(HaveField("State", StateFailed), HaveField("Unschedulable", HaveValue(BeFalse()))))
				g.Expect(patch.Record).To(HaveValue(And(HaveField("Reason", v1.ReasonReconcileFailed),
					HaveField("Message", a.Failing), HaveField("RetryAt", c.Now.Add(10*time.Minute)))))
				c.Nodes[0].State, c.Nodes[0].Record, c.Nodes[0].Unschedulable = StateFailed, patch.Record, false
				g.Expect(c.Plan().Slots).To(HaveKey("b"))
			})
		}
	}
}

// restarts is a cordoned node "a" whose old driver works, and whose driver was edited after its images were pulled.
func restarts() Node {
	n := queued("a")
	n.Driver.Name, n.Driver.UID, n.State, n.Unschedulable = "driver", "d", StatePodRestart, true
	n.Workload = &Workload{}
	n.Record = &Record{
		UID: "u", Round: 1, State: StatePodRestart, Since: epoch, Target: "v2", Cordoned: true, DriverPod: "d",
		Pulled: "v1.5",
	}
	return n
}

// The driver may take 10 minutes to start, and its images 15 minutes. Those of an edited target are pulled for 14, and
// the driver has all its time after that.
func TestAPullDoesNotTakeTheTimeOfTheDriver(t *testing.T) {
	g := NewWithT(t)
	n := restarts()
	n.Pull = &Pod{Name: "pull", UID: "p", Digest: "v2", Created: epoch}
	c := Cluster{Now: epoch.Add(14 * time.Minute), Nodes: []Node{n}, Policies: map[string]Policy{"": {
		Auto: true, PullImages: true, PullTimeout: 15 * time.Minute, DriverTimeout: 10 * time.Minute,
		RetryAfter: time.Minute, MaxRetryAfter: time.Hour,
	}}}
	plan := c.Plan()
	g.Expect(plan.Steps).To(BeEmpty(), "the images are being pulled")
	g.Expect(plan.Until).To(Equal(epoch.Add(15 * time.Minute)))

	pulled := *n.Pull
	pulled.Ready, c.Nodes[0].Pull = true, &pulled
	plan = c.Plan()
	g.Expect(plan.Steps).To(ConsistOf(HaveField("Action", ActionPatch)))
	record := plan.Steps[0].Patch.Record
	g.Expect(record).To(HaveValue(And(HaveField("State", StatePodRestart), HaveField("Pulled", "v2"),
		HaveField("Since", c.Now))))
	c.Nodes[0].Record, c.Nodes[0].Pull = record, nil
	plan = c.Plan()
	g.Expect(plan.Steps).To(ConsistOf(HaveField("Action", ActionDeleteDriver)))
	g.Expect(plan.Until).To(Equal(c.Now.Add(10 * time.Minute)))
}

// The images of another driver pool are pulled where the node is by then: its DaemonSet is created after the move.
func TestNoPullBeforeAMove(t *testing.T) {
	g := NewWithT(t)
	n := restarts()
	n.MoveTo = "noble"
	policies := map[string]Policy{"": {Auto: true, PullImages: true}}
	plan := (&Cluster{Now: epoch, Nodes: []Node{n}, Policies: policies}).Plan()
	g.Expect(plan.Steps).To(ConsistOf(HaveField("Patch", HaveValue(HaveField("ReleasePool", true)))))
}

// The pod that pulls the images of an edited target is refused. What ends the upgrade does not wait for it.
func TestARefusedPullDelaysNoEnd(t *testing.T) {
	for name, test := range map[string]struct {
		edit func(*Node)
		want State
	}{
		"another client has uncordoned the node": {edit: func(n *Node) { n.Unschedulable = false }, want: StateFailed},
		"the node is excluded":                   {edit: func(n *Node) { n.Skip = true }, want: StateRequired},
	} {
		for _, state := range []State{StateWaitForJobs, StatePodDeletion, StateDrain, StatePodRestart} {
			t.Run(name+" "+string(state), func(t *testing.T) {
				g := NewWithT(t)
				n := restarts()
				n.State, n.Record.State = state, state
				n.Failing, n.FailingSince = "creating pod pull: denied", epoch
				test.edit(&n)
				plan := (&Cluster{Now: epoch.Add(time.Minute), Nodes: []Node{n}, Policies: map[string]Policy{"": {
					Auto: true, PullImages: true, WaitsForJobs: true, RetryAfter: time.Minute, MaxRetryAfter: time.Hour,
				}}}).Plan()
				g.Expect(plan.Steps).To(ConsistOf(HaveField("Patch", HaveValue(HaveField("State", test.want)))))
			})
		}
	}
}

// A node dies while it waits for jobs that may take as long as they want. The limit of that state is not meant for it:
// other nodes wait for it no longer than 15 minutes.
func TestADeadNodeHoldsNoOther(t *testing.T) {
	for _, state := range []State{StateWaitForJobs, StatePodDeletion, StateDrain, StatePodRestart} {
		t.Run(string(state), func(t *testing.T) {
			g := NewWithT(t)
			a := queued("a")
			a.Driver.UID, a.State, a.Unschedulable, a.KubeletReady, a.NotReadySince = "d", state, true, false, epoch
			a.Record = &Record{
				UID: "u", Round: 1, State: state, Since: epoch, Target: "v2", Cordoned: true, DriverPod: "d",
			}
			c := waitFor(a, epoch, Policy{WaitsForJobs: true})
			plan := c.Plan()
			g.Expect(plan.Steps).To(BeEmpty())
			g.Expect(plan.Until).To(Equal(epoch.Add(15 * time.Minute)))

			c.Now = plan.Until
			plan = c.Plan()
			g.Expect(plan.Steps).To(HaveLen(1))
			patch := plan.Steps[0].Patch
			g.Expect(patch).To(And(HaveField("State", StateFailed), HaveField("Unschedulable", HaveValue(BeFalse()))))
			g.Expect(patch.Record.Reason).To(Equal(v1.ReasonUpgradeNodeNotReady))
			g.Expect(patch.Record.RetryAt).To(Equal(c.Now.Add(10 * time.Minute)))
			c.Nodes[0].State, c.Nodes[0].Record, c.Nodes[0].Unschedulable = StateFailed, patch.Record, false
			g.Expect(c.Plan().Slots).To(HaveKey("b"))
		})
	}
}

// The same while it is drained for a MIG layout.
func TestADeadNodeEndsItsDrain(t *testing.T) {
	for _, state := range []DrainState{DrainJobs, DrainUsers, DrainAll} {
		t.Run(string(state), func(t *testing.T) {
			g := NewWithT(t)
			n := wants("a")
			n.MIG.Idle, n.MIG.Evict = false, true
			n.Unschedulable, n.KubeletReady, n.NotReadySince = true, false, epoch
			n.MIG.Recorded = true
			n.MIG.Drain = &Drain{
				UID: "a", State: state, Layout: "b", Granted: epoch, Since: epoch, Cordoned: true,
				// As is reported before.
				Message: "the node's condition Ready is not True",
			}
			c := Cluster{Now: epoch, Nodes: []Node{n}, Policies: map[string]Policy{"": {
				MaxParallel: 1, MaxUnavailable: intstr.FromInt32(2), RetryAfter: 10 * time.Minute, MaxRetryAfter: time.Hour,
			}}}
			plan := c.Plan()
			g.Expect(plan.Steps).To(BeEmpty())
			g.Expect(plan.Until).To(Equal(epoch.Add(15 * time.Minute)))

			c.Now = plan.Until
			plan = c.Plan()
			g.Expect(plan.Steps).To(HaveLen(1))
			g.Expect(plan.Steps[0].Layout.Unschedulable).To(HaveValue(BeFalse()))
			g.Expect(*plan.Steps[0].Layout.Drain).To(And(HaveField("State", DrainFailed),
				HaveField("RetryAt", c.Now.Add(10*time.Minute)), HaveField("Message", ContainSubstring("Ready"))))
		})
	}
}
