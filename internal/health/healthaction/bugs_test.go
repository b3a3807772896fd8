package healthaction

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/health/gpuhealth"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/chance"
)

// bug is a planner with a mistake that the model has to notice, and what it then reports.
type bug struct {
	name   string
	plan   planner
	report string
}

// steps changes each step of the shipped planner.
func steps(change func(c *Cluster, n *Node, step *Step)) planner {
	return func(c *Cluster) Plan {
		plan := c.Plan()
		for i := range plan.Steps {
			for k := range c.Nodes {
				if c.Nodes[k].Name == plan.Steps[i].Node {
					change(c, &c.Nodes[k], &plan.Steps[i])
				}
			}
		}
		return plan
	}
}

// sees changes what the shipped planner sees.
func sees(change func(seen *Cluster, n *Node)) planner {
	return func(c *Cluster) Plan {
		seen := *c
		seen.Nodes = append([]Node{}, c.Nodes...)
		for i := range seen.Nodes {
			change(&seen, &seen.Nodes[i])
		}
		return seen.Plan()
	}
}

var bugs = []bug{
	{"it acts without a claim", steps(func(_ *Cluster, _ *Node, s *Step) {
		if s.Record == nil || s.Record.State != Claimed {
			return
		}
		record := *s.Record
		record.State = Done
		s.Record = &record
		if record.Action == v1.HealthActionTaint {
			s.Taint = new(true)
		} else {
			s.Unschedulable = new(true)
		}
	}), "though maxNodes was"},
	{"it does not count the claims of others", func(c *Cluster) Plan {
		plan := c.Plan()
		// Each claim is seen as if it were the only one.
		for i := range c.Nodes {
			alone := *c
			alone.Nodes = append([]Node{}, c.Nodes...)
			for k := range alone.Nodes {
				if record := alone.Nodes[k].Record; k != i && record != nil && record.State == Claimed {
					alone.Nodes[k].Record, alone.Nodes[k].HasRecord, alone.Nodes[k].Consent = nil, false, labels.HealthForbid
				}
			}
			for _, step := range alone.Plan().Steps {
				if step.Node == c.Nodes[i].Name && step.Taint != nil && *step.Taint {
					plan.Steps = append(plan.Steps, step)
				}
			}
		}
		return plan
	}, "though maxNodes was"},
	{"it ignores maxNodes", sees(func(seen *Cluster, _ *Node) {
		if seen.Policy != nil {
			policy := *seen.Policy
			policy.MaxNodes.IntVal = 9
			seen.Policy = &policy
		}
	}), "though maxNodes was"},
	{"it takes the last healthy node for one of several", sees(func(_ *Cluster, n *Node) {
		n.Group = ""
		n.InService = true
	}), "there is no other healthy node"},
	{"it takes a node whose agent has not reported for a healthy one", sees(func(_ *Cluster, n *Node) {
		if n.Watched && !n.Reported && n.Record == nil {
			n.Watched = false
		}
	}), "there is no other healthy node"},
	{"it does not wait", sees(func(seen *Cluster, _ *Node) {
		if seen.Policy != nil {
			policy := *seen.Policy
			policy.Dwell = new(time.Duration(0))
			seen.Policy = &policy
		}
	}), "the fault is too recent"},
	{"it takes an approval for any fault", sees(func(_ *Cluster, n *Node) {
		if strings.HasPrefix(n.Consent, labels.HealthApprove) && len(n.Report.Faults) > 0 {
			n.Consent = labels.HealthApprove + faultID(n.Report.Boot, &n.Report.Faults[0])
		}
	}), "the fault is too recent"},
	{"it wakes up after the fault has lasted long enough", func(c *Cluster) Plan {
		plan := c.Plan()
		if !plan.Until.IsZero() {
			plan.Until = plan.Until.Add(time.Minute)
		}
		return plan
	}, "nothing wakes the operator"},
	{"it ignores that a user forbids it", sees(func(_ *Cluster, n *Node) {
		if n.forbids() {
			n.Consent = ""
		}
	}), "a user has forbidden it"},
	{"it ignores NVSentinel", sees(func(_ *Cluster, n *Node) {
		if len(n.Report.Faults) > 0 {
			n.OtherActor = ""
		}
	}), "someone else works on the node"},
	{"it ignores a driver upgrade", sees(func(_ *Cluster, n *Node) { n.Upgrading = false }),
		"while someone relies on it"},
	{"it uncordons what it has not cordoned", steps(func(_ *Cluster, n *Node, s *Step) {
		if s.Record == nil && n.Unschedulable {
			s.Unschedulable = new(false)
		}
	}), "the cordon of someone else is removed"},
	{"it uncordons while NVSentinel relies on it", sees(func(_ *Cluster, n *Node) { n.ReliesOnCordon = "" }),
		"while someone relies on it"},
	{"it takes the record for the truth", sees(func(_ *Cluster, n *Node) {
		if record := n.ownRecord(); record != nil && record.State == Done {
			n.Tainted = record.Action == v1.HealthActionTaint
			n.Unschedulable = n.Unschedulable || record.Action == v1.HealthActionCordon
		}
	}), "rests without a reason"},
	{"it does it again after a person has undone it", sees(func(_ *Cluster, n *Node) {
		if record := n.ownRecord(); record != nil && record.State == Undone {
			n.Record, n.HasRecord = nil, false
		}
	}), "a person has undone it"},
	{"what a person has undone hides later faults", sees(func(_ *Cluster, n *Node) {
		if record := n.ownRecord(); record != nil && record.State == Undone {
			n.Report.Faults = slices.DeleteFunc(slices.Clone(n.Report.Faults), func(f gpuhealth.Fault) bool {
				return !slices.Contains(record.undone(), faultID(n.Report.Boot, &f))
			})
		}
	}), "that an earlier one hides"},
	{"it forgets what a person has undone when it acts for another fault", steps(func(_ *Cluster, _ *Node, s *Step) {
		if s.Record != nil && s.Record.State != Undone {
			record := *s.Record
			record.Undone = nil
			s.Record = &record
		}
	}), "the action is another one"},
	{"it leaves the taint that a user forbids until the agent reports", sees(func(_ *Cluster, n *Node) {
		if !n.Reported && n.forbids() {
			n.Consent = ""
		}
	}), "is acted on without a fault"},
	{"it leaves the taint without an action until the agent reports", func(c *Cluster) Plan {
		seen := *c
		if seen.Policy != nil {
			policy := *seen.Policy
			policy.Actions = maps.Clone(policy.Actions)
			if slices.ContainsFunc(c.Nodes, func(n Node) bool { return n.Watched && !n.Reported }) {
				policy.Actions[gpuhealth.Reset] = v1.HealthActionTaint
			}
			seen.Policy = &policy
		}
		return seen.Plan()
	}, "is acted on without a fault"},
	{"it leaves the taint when the agent is turned off", sees(func(_ *Cluster, n *Node) {
		if !n.Watched && n.Tainted {
			n.Tainted = false
			n.HasRecord, n.Record = false, nil
		}
	}), "is acted on without a fault"},
	{"it leaves the record", steps(func(_ *Cluster, n *Node, s *Step) {
		if s.Record == nil {
			s.Record = n.Record
		}
	}), "do not come to rest"},
	{"it leaves the approval", steps(func(_ *Cluster, _ *Node, s *Step) { s.EndConsent = false }), "do not come to rest"},
	{"it removes what a user forbids", steps(func(_ *Cluster, n *Node, s *Step) {
		s.EndConsent = s.EndConsent || n.forbids()
	}), "the consent of a user is removed"},
	{"it never gives up a claim", func(c *Cluster) Plan {
		plan := c.Plan()
		var kept []Step
		for _, step := range plan.Steps {
			if !strings.Contains(step.Why, "gives up its claim") {
				kept = append(kept, step)
			}
		}
		plan.Steps = kept
		return plan
	}, "waits for a place"},
	{"it drops the record of a cordon with the approval", func(c *Cluster) Plan {
		plan := c.Plan()
		for i := range c.Nodes {
			n := &c.Nodes[i]
			approved := strings.HasPrefix(n.Consent, labels.HealthApprove)
			if n.Reported && len(n.Report.Faults) == 0 && approved && n.ReliesOnCordon != "" && c.Policy != nil {
				plan.Steps = append(plan.Steps, Step{Node: n.Name, EndConsent: true})
			}
		}
		return plan
	}, "something is left"},
	{"it acts although many nodes fail at a time", sees(func(seen *Cluster, n *Node) {
		faults := append([]gpuhealth.Fault{}, n.Report.Faults...)
		for i := range faults {
			if seen.Now.Sub(faults[i].Since) >= DefaultDwell {
				faults[i].Since = epoch.Add(-time.Duration(n.Name[0]) * time.Hour)
			}
		}
		n.Report.Faults = faults
	}), "too many nodes have failed at a time"},
}

// noticedIn are the settings that show a bug, where the first one does not.
var noticedIn = map[string]string{
	"it acts without a claim":                                            "one of three is faulty",
	"it does not count the claims of others":                             "two of three are faulty",
	"it ignores maxNodes":                                                "three of four have failed at a time",
	"it ignores a driver upgrade":                                        "one of two is cordoned",
	"it uncordons while NVSentinel relies on it":                         "one of two is cordoned",
	"it never gives up a claim":                                          "three of four have failed at a time",
	"it drops the record of a cordon with the approval":                  "one of two is cordoned",
	"it acts although many nodes fail at a time":                         "three of four have failed at a time",
	"it forgets what a person has undone when it acts for another fault": "one of two is cordoned",
}

// TestModelNoticesBugs tries one in four bugs with -short, which chance selects: make test-full tries all.
func TestModelNoticesBugs(t *testing.T) {
	for _, bug := range chance.Part(t, "bugs", bugs, (len(bugs)+3)/4, func(b bug) string { return b.name }) {
		t.Run(bug.name, func(t *testing.T) {
			in := settings[0]
			if name, other := noticedIn[bug.name]; other {
				in = settings[slices.IndexFunc(settings, func(s setting) bool { return s.name == name })]
			}
			e, err := in.explore(bug.plan, in.depth, in.events)
			if err == nil {
				t.Fatalf("%s: not noticed in %d states", in.name, len(e.distinct))
			}
			first, _, _ := strings.Cut(err.Error(), "\n")
			if bug.report == "" || !strings.Contains(err.Error(), bug.report) {
				t.Fatalf("noticed for another reason: %v", err)
			}
			t.Logf("%s, %d states: %s", in.name, len(e.distinct), first)
		})
	}
}
