package drain

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

var since = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// pods are pods with these names; the policy forbids the eviction of those whose name begins with "bare".
func pods(names ...string) []Pod {
	var all []Pod
	for _, name := range names {
		pod := Pod{Namespace: "n", Name: name, UID: types.UID(name), Forbidden: strings.HasPrefix(name, "bare")}
		if pod.Forbidden {
			pod.Blocked = "needs x.force"
		}
		all = append(all, pod)
	}
	return all
}

// begun is a drain with limits of one, two and three hours, whose step has lasted for some time.
func begun(ago time.Duration, change func(*Drain)) *Drain {
	d := &Drain{
		WaitsForJobs: true, Timeouts: [...]time.Duration{time.Hour, 2 * time.Hour, 3 * time.Hour}, Since: since,
		Now: since.Add(ago), KubeletReady: true,
		Workload: &Workload{Users: pods("a", "b"), Jobs: pods("b"), Others: pods("c")},
	}
	change(d)
	return d
}

// What a step does, by what is seen.
func TestNext(t *testing.T) {
	const users, jobs = "waits for the end of 2 pods: n/a, n/b", "waits for pod n/b"
	as := func(*Drain) {}
	gone := func(d *Drain) { d.KubeletReady, d.NotReadySince = false, since }
	for name, test := range map[string]struct {
		ago    time.Duration
		change func(*Drain)
		step   Step
		want   Answer
	}{
		"jobs": {0, as, Jobs, Answer{
			Reason: v1.ReasonUpgradeWaitingForJobs, Message: jobs, Deadline: since.Add(time.Hour),
		}},
		"jobs for too long": {time.Hour, as, Jobs, Answer{
			Reason: v1.ReasonUpgradeWaitingForJobs, Message: jobs, Deadline: since.Add(time.Hour),
			Passed: "waitForCompletion.timeoutSeconds has passed",
		}},
		"no job, for too long": {time.Hour, func(d *Drain) { d.Workload.Jobs = nil }, Jobs, Answer{Done: true}},
		"users": {2*time.Hour - 1, as, Users, Answer{
			Evict: pods("a", "b"), Why: "they use the GPUs", Reason: v1.ReasonUpgradeEvicting, Message: users,
			Deadline: since.Add(2 * time.Hour),
		}},
		"one that ends, and one that may not be evicted": {
			2 * time.Hour, func(d *Drain) { d.Workload.Users = pods("bare", "b"); d.Workload.Users[1].Ending = true }, Users,
			Answer{
				Why: "they use the GPUs", Held: true, Reason: v1.ReasonUpgradeBlocked, Message: "pod n/bare needs x.force",
				Deadline: since.Add(2 * time.Hour), Passed: "podDeletion.timeoutSeconds has passed",
			},
		},
		"no user": {0, func(d *Drain) { d.Workload.Users = nil }, All, Answer{Done: true}},
		"all": {3 * time.Hour, as, All, Answer{
			Evict: pods("a", "b", "c"), Why: "the node is drained", Reason: v1.ReasonUpgradeEvicting,
			Message: "waits for the end of 3 pods: n/a, n/b, n/c", Deadline: since.Add(3 * time.Hour),
			Passed: "drain.timeoutSeconds has passed",
		}},
		"without a limit, pods not read": {9 * time.Hour, func(d *Drain) { d.Workload, d.Timeouts[All] = nil, 0 }, All,
			Answer{Message: "the pods on the node are not read yet"}},
		"no report": {DeadTime - 1, gone, Jobs, Answer{
			Held: true, Reason: v1.ReasonUpgradeNodeNotReady, Message: NotReady, Until: since.Add(DeadTime),
			Deadline: since.Add(time.Hour),
		}},
		"no report for too long": {DeadTime, gone, Users, Answer{
			Held: true, Reason: v1.ReasonUpgradeNodeNotReady, Message: NotReady, Deadline: since.Add(2 * time.Hour),
		}},
		"no report since an unknown time": {0, func(d *Drain) { d.KubeletReady = false }, Users, Answer{
			Held: true, Reason: v1.ReasonUpgradeNodeNotReady, Message: NotReady, Deadline: since.Add(2 * time.Hour),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(begun(test.ago, test.change).Next(test.step)).To(Equal(test.want))
		})
	}
}

func TestDead(t *testing.T) {
	g := NewWithT(t)
	gone := func(d *Drain) { d.KubeletReady, d.NotReadySince = false, since }
	g.Expect(begun(DeadTime-1, gone).Dead()).To(BeEmpty())
	g.Expect(begun(DeadTime, gone).Dead()).To(Equal(NotReady + " since 2026-01-01T00:00:00Z"))
	g.Expect(begun(DeadTime, func(d *Drain) { gone(d); d.KubeletReady = true }).Dead()).To(BeEmpty())
	g.Expect(begun(DeadTime, func(d *Drain) { d.KubeletReady = false }).Dead()).To(BeEmpty())
}

// With which step a drain begins and ends.
func TestFirstAndLastStep(t *testing.T) {
	g := NewWithT(t)
	g.Expect(begun(0, func(*Drain) {}).First()).To(Equal(Jobs))
	g.Expect(begun(0, func(d *Drain) { d.WaitsForJobs = false }).First()).To(Equal(Users))
	g.Expect(begun(0, func(d *Drain) { d.Workload.Jobs = nil }).First()).To(Equal(Users))
	last := func(drains bool) (last []bool) {
		for step := range All + 1 {
			last = append(last, (&Drain{Drains: drains}).IsLast(step))
		}
		return last
	}
	g.Expect(last(false)).To(Equal([]bool{false, true, true}))
	g.Expect(last(true)).To(Equal([]bool{false, false, true}))
}

// A pod is an obstacle that no step evicts.
func TestObstacle(t *testing.T) {
	bare := func(d *Drain) { d.Workload.Users, d.Workload.Jobs = pods("a", "bare"), pods("bare") }
	const obstacle = "pod n/bare needs x.force"
	for name, test := range map[string]struct {
		change func(*Drain)
		step   Step
		want   string
	}{
		"no drain follows":      {bare, Users, obstacle},
		"it is waited for":      {bare, Jobs, ""},
		"another job":           {func(d *Drain) { bare(d); d.Workload.Jobs = pods("a") }, Jobs, obstacle},
		"a drain follows":       {func(d *Drain) { bare(d); d.Drains = true }, Users, ""},
		"a drain follows never": {func(d *Drain) { bare(d); d.Drains, d.Timeouts[Users] = true, 0 }, Users, obstacle},
		"the drain":             {bare, All, ""},
		"the drain spares it":   {func(d *Drain) { bare(d); d.Workload.Users[1].Lasting = true }, All, obstacle},
		"it is ending":          {func(d *Drain) { bare(d); d.Workload.Users[1].Ending = true }, Users, ""},
		"the pods are not read": {func(d *Drain) { d.Workload = nil }, Users, ""},
		"no report":             {func(d *Drain) { bare(d); d.KubeletReady = false }, Users, ""},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(begun(0, test.change).Obstacle(test.step)).To(Equal(test.want))
		})
	}
}

// All pods of a node that cannot be evicted are named at once, or counted if their names do not fit into a message.
func TestAllBlockedPodsAreNamed(t *testing.T) {
	g := NewWithT(t)
	pod := func(name, blocked string) Pod {
		return Pod{Namespace: "n", Name: name, Blocked: blocked, Forbidden: strings.HasPrefix(blocked, "needs")}
	}
	message := func(pods ...Pod) string { return evict(pods, "").Message }
	budget, rule := pod("a", "PDB n/a allows 0 disruptions"), pod("b", "needs x.force: it has no controller")
	g.Expect(message(budget)).To(Equal("PDB n/a allows 0 disruptions: pod n/a"))
	g.Expect(message(pod("c", ""), budget, rule)).To(Equal(
		"PDB n/a allows 0 disruptions: pod n/a; pod n/b needs x.force: it has no controller"))
	many := []Pod{budget, rule, pod("d", strings.Repeat("x", 60))}
	g.Expect(message(many...)).To(Equal("3 pods are blocked: PDB n/a allows 0 disruptions: pod n/a"))
}
