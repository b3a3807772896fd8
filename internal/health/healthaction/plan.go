package healthaction

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/health/gpuhealth"
	"github.com/clusterpolicy/gpu-operator/internal/names/times"
)

// Cluster is the input of a plan.
type Cluster struct {
	Now time.Time
	// Policy is nil if there is none: everything is undone.
	Policy *Policy
	// Nodes are the GPU nodes, and those with a record or the taint.
	Nodes []Node
}

// Plan is what has to be done now.
type Plan struct {
	// Steps, at most one for each node.
	Steps []Step
	// Nodes has the nodes for which there is an action, by name.
	Nodes map[string]Verdict
	// Until is when the plan changes by time alone; zero if never.
	Until time.Time
}

// Step is one patch of one Node.
type Step struct {
	Node string
	// Record of the annotation; nil removes it.
	Record *Record
	// Taint and Unschedulable are set if not nil.
	Taint, Unschedulable *bool
	// EndConsent removes the annotation of the user.
	EndConsent bool
	// Why the step is due, one sentence for the log.
	Why string
}

// TakesPlace reports whether the node takes a place among those that are acted on: by a claim, or by the action.
func (s *Step) TakesPlace() bool { return s.Record.takesPlace() }

// Hold is what keeps an action from being taken.
type Hold string

// The holds. docs/health.md lists them.
const (
	HoldForbidden       Hold = "Forbidden"
	HoldUndone          Hold = "Undone"
	HoldOtherActor      Hold = "OtherActor"
	HoldDriverNotReady  Hold = "DriverNotReady"
	HoldCordonedByOther Hold = "CordonedByOther"
	HoldDwell           Hold = "Dwell"
	HoldManyFaults      Hold = "ManyFaults"
	HoldLastHealthyNode Hold = "LastHealthyNode"
	HoldMaxNodes        Hold = "MaxNodes"
	// HoldRejected is that of the API server, which rejects a write, or does not answer it.
	HoldRejected Hold = "Rejected"
)

// Holds returns all holds.
func Holds() []Hold {
	return []Hold{
		HoldForbidden, HoldUndone, HoldOtherActor, HoldDriverNotReady, HoldCordonedByOther, HoldDwell, HoldManyFaults,
		HoldLastHealthyNode, HoldMaxNodes, HoldRejected,
	}
}

// Verdict is what is done with a node.
type Verdict struct {
	// Done is taint or cordon; empty if nothing is done.
	Done v1.HealthAction
	// Hold is what keeps the wanted action from being taken; empty if it is taken, or about to be.
	Hold Hold
	// Text for users: "tainted", or "not tainted: 1 of 1 nodes are acted on already; fault reboot-3f2a91c0". Empty while
	// the action is about to be taken.
	Text string
}

// Acting reports whether the action is about to be taken.
func (v Verdict) Acting() bool { return v.Text == "" }

// turn is what is due for one node.
type turn struct {
	step    *Step
	verdict *Verdict
	until   time.Time
	// wants: only the brakes, which concern all nodes, can keep the action from being taken.
	wants *want
}

// want is an action that only the brakes can hold.
type want struct {
	node     *Node
	fault    *gpuhealth.Fault
	id       string
	action   v1.HealthAction
	claimed  bool
	approved bool
	// isUndone: someone has undone an action for the fault, and for all others.
	isUndone bool
	// undone are the IDs of the faults of the node for which someone has undone an action.
	undone []string
}

// Plan returns the next steps. It does not modify the cluster.
func (c *Cluster) Plan() Plan {
	plan := Plan{Nodes: map[string]Verdict{}}
	turns := make([]turn, len(c.Nodes))
	for i := range c.Nodes {
		turns[i] = c.visit(&c.Nodes[i])
	}
	c.admit(turns)
	for i := range turns {
		name := c.Nodes[i].Name
		if step := turns[i].step; step != nil {
			step.Node = name
			plan.Steps = append(plan.Steps, *step)
		}
		if verdict := turns[i].verdict; verdict != nil {
			plan.Nodes[name] = *verdict
		}
		plan.Until = times.Earlier(plan.Until, turns[i].until)
	}
	return plan
}

// brake is what the nodes permit together.
type brake struct {
	limit, places int
	storm         bool
	// healthy counts the nodes of each group that can replace others.
	healthy map[string]int
}

func (c *Cluster) brake() *brake {
	b := &brake{storm: c.isStorm(), healthy: map[string]int{}}
	nodes := 0
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if n.Managed {
			nodes++
		}
		if n.takesPlace() {
			b.places++
		}
		if n.isHealthy() {
			b.healthy[n.Group]++
		}
	}
	// The effective spec has only numbers and percentages; of anything else nothing is allowed.
	if limit, err := intstr.GetScaledValueFromIntOrPercent(&c.Policy.MaxNodes, nodes, true); err == nil {
		b.limit = limit
	}
	return b
}

// admit decides which of the wanted actions are taken: a node without a place claims one, and a claim is used if there
// are not more places taken than allowed, those of claims that are given up included: another manager may be about to
// use them.
func (c *Cluster) admit(turns []turn) {
	var wants []int
	for i := range turns {
		if turns[i].wants != nil {
			wants = append(wants, i)
		}
	}
	if len(wants) == 0 {
		return
	}
	slices.SortFunc(wants, func(i, j int) int { return compare(turns[i].wants, turns[j].wants) })
	b := c.brake()
	// Claims beyond the limit are given up, the last ones first.
	excess := b.places - b.limit
	for at := len(wants) - 1; at >= 0; at-- {
		w := turns[wants[at]].wants
		if w.claimed && excess > 0 {
			excess--
			turns[wants[at]] = w.refuse(HoldMaxNodes, b.text())
		}
	}
	for _, i := range wants {
		if w := turns[i].wants; w != nil {
			turns[i] = b.admitOne(w)
		}
	}
}

// admitOne returns what is due for a node whose action only the brakes can hold, and takes a place if it gets one.
func (b *brake) admitOne(w *want) turn {
	switch hold, why := b.holds(w); {
	case hold != "":
		return w.refuse(hold, why)
	case !w.claimed:
		b.places++
		return turn{verdict: &Verdict{}, step: w.record(Claimed, "the node claims a place among those that are acted on")}
	case b.places > b.limit:
		// Until the excess claims are given up.
		return turn{verdict: &Verdict{}}
	}
	step := w.record(Done, past(w.action)+": "+w.fault.Text())
	if w.action == v1.HealthActionTaint {
		step.Taint = new(true)
	} else {
		step.Unschedulable = new(true)
	}
	return turn{verdict: &Verdict{Done: w.action, Text: past(w.action)}, step: step}
}

// holds returns which brake keeps the action from being taken; empty for none.
func (b *brake) holds(w *want) (Hold, string) {
	switch {
	case b.storm && !w.approved:
		return HoldManyFaults, fmt.Sprintf("%d or more nodes, and over %d%% of them, have failed within %s, "+
			"as with a driver that fails", stormNodes, 100/stormPart, times.Short(stormWindow))
	case b.healthy[w.node.Group] == 0:
		return HoldLastHealthyNode, "no other node of its node pool and product is healthy"
	case !w.claimed && b.places >= b.limit:
		return HoldMaxNodes, b.text()
	}
	return "", ""
}

// text does not name the nodes: it must not change with them.
func (b *brake) text() string {
	if b.limit == 0 {
		return "maxNodes allows none"
	}
	return fmt.Sprintf("%d of %d nodes are acted on already", b.limit, b.limit)
}

// refuse holds the action, and gives up the claim.
func (w *want) refuse(hold Hold, why string) turn {
	t := turn{verdict: w.held(hold, why)}
	if w.claimed {
		t.step = &Step{Record: w.node.ownRecord().keeping(w.undone), Why: "the node gives up its claim: " + why}
	}
	return t
}

func (w *want) held(hold Hold, why string) *Verdict {
	return &Verdict{Hold: hold, Text: fmt.Sprintf("not %s: %s; fault %s", past(w.action), why, w.id)}
}

func (w *want) record(state State, why string) *Step {
	record := &Record{UID: w.node.UID, State: state, Action: w.action, Fault: w.id, Undone: w.undone}
	return &Step{Record: record, Why: why}
}

// compare orders wanted actions: those that have claimed, those that a user has approved, the worse class, the older
// fault, and the name.
func compare(a, b *want) int {
	return cmp.Or(
		first(a.claimed, b.claimed), first(a.approved, b.approved), b.fault.Class.Compare(a.fault.Class),
		a.fault.Since.Compare(b.fault.Since), strings.Compare(a.node.Name, b.node.Name),
	)
}

func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	default:
		return 1
	}
}

// past is what is done, in words.
func past(action v1.HealthAction) string {
	if action == v1.HealthActionCordon {
		return "cordoned"
	}
	return "tainted"
}

const (
	rejected   = "the API server has rejected a change of the node: "
	unanswered = "the API server has not answered a change of the node"
)

// rejection returns the text about a failed write. message is the API server's; empty if it has not answered.
func rejection(message string) string {
	if message == "" {
		return unanswered
	}
	return rejected + message
}

// Missed returns the verdict on a node whose step was not carried out. failed reports whether the write has failed, and
// message is the API server's; empty if it has not answered.
func (v Verdict) Missed(n *Node, step *Step, failed bool, message string) Verdict {
	switch {
	case failed:
		return Verdict{Done: n.shows(), Hold: HoldRejected, Text: rejection(message)}
	case step.Taint == nil && step.Unschedulable == nil:
		return v
	default:
		return Verdict{Done: n.shows()}
	}
}
