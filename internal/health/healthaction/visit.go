package healthaction

import (
	"slices"
	"time"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/times"
)

// visit decides what is due for one node, but for the brakes.
func (c *Cluster) visit(n *Node) turn {
	record := n.ownRecord()
	switch {
	case c.Policy == nil || !n.Watched:
		return c.undo(n, "the node has no health agent, or there is no policy")
	case record == nil && (n.HasRecord || n.Tainted):
		return c.undo(n, "what the node has is not recorded as this operator's")
	case !n.Reported:
		return c.unreported(n, record)
	}
	w := c.Policy.deciding(n)
	switch {
	case w == nil:
		return c.recovered(n)
	case n.forbids():
		return c.forbidden(w)
	default:
		w.claimed = record != nil && record.State == Claimed
		return c.faulty(w, record)
	}
}

// recovered is a node without a fault that is acted on.
func (c *Cluster) recovered(n *Node) turn {
	t := c.undo(n, "no fault that is acted on is left")
	if n.Consent != "" && !n.forbids() && len(n.Report.Faults) == 0 {
		t.endConsent()
	}
	return t
}

// faulty is a node with a fault that is acted on, which no user forbids. record is nil for none.
func (c *Cluster) faulty(w *want, record *Record) turn {
	if record != nil {
		switch {
		case w.isUndone:
			return c.allUndone(w, record)
		case record.State == Done:
			return c.done(w, record)
		}
	}
	if hold, why, until := c.holds(w); hold != "" {
		t := w.refuse(hold, why)
		t.until = until
		return t
	}
	return turn{wants: w}
}

// allUndone is a node that has only faults for which someone has undone an action. What was done for another fault,
// which has ended, is undone, too.
func (c *Cluster) allUndone(w *want, record *Record) turn {
	held := turn{verdict: w.held(HoldUndone, "someone has undone it")}
	if record.State == Undone && len(record.undone()) == len(w.undone) {
		return held
	}
	t := c.undo(w.node, "only faults are left for which someone has undone it")
	if t.verdict != nil {
		return t
	}
	t.step.Record, t.verdict = record.keeping(w.undone), held.verdict
	return t
}

// undo removes what the operator has set on the node, and its record. A cordon stays while someone else relies on it.
func (c *Cluster) undo(n *Node, why string) turn {
	record := n.ownRecord()
	if !n.HasRecord && !n.Tainted {
		return turn{}
	}
	step := &Step{Why: why}
	if n.Tainted {
		step.Taint = new(false)
	}
	if record != nil && record.Cordons(n.UID) && n.isDone(record) {
		if actor := c.reliesOnCordon(n); actor != "" {
			return turn{verdict: &Verdict{Done: v1.HealthActionCordon, Text: "still cordoned: " + actor}}
		}
		step.Unschedulable = new(false)
	}
	return turn{step: step}
}

// reliesOnCordon returns what needs the node to stay cordoned; empty for nothing. Without a policy only an upgrade
// counts, which ends.
func (c *Cluster) reliesOnCordon(n *Node) string {
	if n.Upgrading {
		return n.upgrade()
	}
	if c.Policy == nil || n.ReliesOnCordon == "" {
		return ""
	}
	return n.ReliesOnCordon + worksOnIt
}

// upgrade is what works on a node that is Upgrading, in texts.
func (n *Node) upgrade() string {
	if n.Relayouting {
		return "its MIG layout is being changed"
	}
	return "its driver is being upgraded"
}

// worksOnIt follows the name of another program in texts.
const worksOnIt = " works on the node"

// unreported is a node whose agent has not reported since its boot. What was done stays, as nothing proves that the
// fault has ended.
func (c *Cluster) unreported(n *Node, record *Record) turn {
	switch {
	case record == nil:
		return turn{}
	case n.forbids():
		return c.undo(n, forbids)
	case !c.Policy.actsFor(record.Fault):
		return c.undo(n, "there is no action for its fault any more")
	case record.State == Claimed:
		return turn{step: &Step{
			Record: record.keeping(record.Undone), Why: "the node gives up its claim: its health agent has not reported",
		}}
	case record.State == Done && !n.isDone(record):
		return c.undone(n, record)
	case record.State == Done:
		return turn{verdict: &Verdict{Done: record.Action, Text: past(record.Action)}}
	default:
		return turn{}
	}
}

// undone records that someone else has removed the taint or the cordon: for all faults that the node has now.
func (c *Cluster) undone(n *Node, record *Record) turn {
	faults := append([]string{record.Fault}, record.Undone...)
	for _, fault := range c.Policy.actedOn(n) {
		if id := faultID(n.Report.Boot, fault); !slices.Contains(faults, id) {
			faults = append(faults, id)
		}
	}
	step := &Step{Record: record.keeping(faults), Why: "someone has undone it"}
	if n.Tainted {
		step.Taint = new(false)
	}
	text := "not " + past(record.Action) + ": someone has undone it; fault " + record.Fault
	return turn{step: step, verdict: &Verdict{Hold: HoldUndone, Text: text}}
}

// endConsent adds the removal of the user's annotation, unless the record has to stay.
func (t *turn) endConsent() {
	switch {
	case t.verdict != nil:
		return
	case t.step == nil:
		t.step = &Step{Why: "the fault that a user has approved an action for has ended"}
	}
	t.step.EndConsent = true
}

const forbids = "a user forbids it"

// forbidden undoes what was done before a user forbade it.
func (c *Cluster) forbidden(w *want) turn {
	t := c.undo(w.node, forbids)
	if t.verdict == nil {
		t.verdict = w.held(HoldForbidden, "the annotation "+labels.HealthConsent+" forbids it")
	}
	return t
}

// done is a node that is acted on.
func (c *Cluster) done(w *want, record *Record) turn {
	n := w.node
	verdict := &Verdict{Done: record.Action, Text: past(record.Action)}
	switch {
	case !n.isDone(record):
		return c.undone(n, record)
	case record.Action == w.action && record.Fault == w.id && len(record.Undone) > len(w.undone):
		return turn{verdict: verdict, step: w.record(Done, "a fault has ended for which someone has undone it")}
	case record.Action == w.action && record.Fault == w.id:
		return turn{verdict: verdict}
	case record.Action == w.action:
		return turn{verdict: verdict, step: w.record(Done, "another fault decides about the node")}
	}
	if hold, why, until := c.holds(w); hold != "" {
		held := w.held(hold, why)
		held.Done, held.Text = record.Action, verdict.Text+", "+held.Text
		return turn{verdict: held, until: until}
	}
	// The place is kept, so that no brake applies.
	cordon := w.action == v1.HealthActionCordon
	step := w.record(Done, "the action for its fault is another one: "+string(w.action))
	step.Taint, step.Unschedulable = new(!cordon), new(cordon)
	return turn{verdict: &Verdict{Done: w.action, Text: past(w.action)}, step: step}
}

// holds returns what about the node itself keeps the action from being taken, and until when if time alone ends it.
func (c *Cluster) holds(w *want) (hold Hold, why string, until time.Time) {
	n := w.node
	switch {
	case n.Upgrading:
		return HoldOtherActor, n.upgrade(), time.Time{}
	case n.OtherActor != "":
		return HoldOtherActor, n.OtherActor + worksOnIt, time.Time{}
	case !n.DriverReady:
		return HoldDriverNotReady, "its driver is not ready, so that a fault may be the driver's", time.Time{}
	case n.isCordonedByOther():
		return HoldCordonedByOther, "someone else has cordoned the node", time.Time{}
	case c.Now.Before(n.RejectedUntil):
		return HoldRejected, rejection(n.Rejected), n.RejectedUntil
	case w.approved:
		return "", "", time.Time{}
	}
	dwell := c.Policy.dwell(w.fault, w.action)
	if end := w.fault.Since.Add(dwell); c.Now.Before(end) {
		return HoldDwell, "the fault must last " + times.Short(dwell), end
	}
	return "", "", time.Time{}
}

// isCordonedByOther reports whether the node is cordoned, and not by this operator.
func (n *Node) isCordonedByOther() bool {
	record := n.ownRecord()
	return n.Unschedulable && (record == nil || !record.Cordons(n.UID))
}
