package invariant

import (
	"fmt"
	"maps"
	"time"

	"github.com/clusterpolicy/gpu-operator/test/campaign/fault"
	"github.com/clusterpolicy/gpu-operator/test/campaign/history"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// Run has the records of a finished run.
type Run struct {
	Begin  history.World
	Events []history.Event
	// Writes are those of all operators as recorded by the proxies, and Calls their requests as logged by the API
	// server.
	Writes []fault.Record
	Calls  cluster.Calls
	// Namespace is the operator's.
	Namespace string
	// Seeds are objects of users that the run must not change, and Cordoned a node that a user has cordoned.
	Seeds    []history.Key
	Cordoned string
	// MayGo reports whether the run explains the deletion of a pod of the operand from the node.
	MayGo func(operand, node string) bool
	// Blind is when the operator could not observe or act: it did not run, or was disconnected.
	Blind []Interval
	// Only are the nodes that the operator may write to after Since, if not empty.
	Only  []string
	Since time.Time
	// Unprivileged reports whether a container of an operand has no privileges in the published table.
	Unprivileged func(operand, container string) bool
	// MaxParallel is how many nodes may be in a driver upgrade at a time; 0 if the run has none.
	MaxParallel int
	// NewDrivers: another client makes nodes start their drivers again, whereupon what has validated them is replaced.
	NewDrivers bool
	// RightsRevoked: the run removes permissions of the operator.
	RightsRevoked bool
	// End is when the run was over.
	End time.Time
}

// Interval is a time from Begin to End.
type Interval struct{ Begin, End time.Time }

// sighted returns how much of the time between two moments the operator could observe and act.
func (r *Run) sighted(begin, end time.Time) time.Duration {
	total := end.Sub(begin)
	for _, blind := range r.Blind {
		from, to := begin, end
		if blind.Begin.After(from) {
			from = blind.Begin
		}
		if blind.End.Before(to) {
			to = blind.End
		}
		total -= max(to.Sub(from), 0)
	}
	return total
}

// replay calls each with the world after every revision.
func (r *Run) replay(each func(history.World, history.Event)) {
	world := maps.Clone(r.Begin)
	for _, event := range r.Events {
		world.Apply(event)
		each(world, event)
	}
}

// Violation is a violated invariant.
type Violation struct {
	ID string
	// Version is the revision after which it was violated, 0 if it does not concern one.
	Version uint64
	Object  string
	Detail  string
}

// String returns the invariant, the object and the revision.
func (v Violation) String() string {
	text := v.ID + " " + v.Object
	if v.Version > 0 {
		text += fmt.Sprintf(" at resourceVersion %d", v.Version)
	}
	return text + ": " + v.Detail
}

// found collects the violations of one invariant, one per object.
type found struct {
	id   string
	seen map[string]bool
	all  []Violation
}

func (f *found) at(event history.Event, format string, args ...any) {
	f.add(event.String(), event.Version, fmt.Sprintf(format, args...))
}

func (f *found) add(object string, version uint64, detail string) {
	if f.seen[object] {
		return
	}
	if f.seen == nil {
		f.seen = map[string]bool{}
	}
	f.seen[object] = true
	f.all = append(f.all, Violation{ID: f.id, Version: version, Object: object, Detail: detail})
}

// Judge returns the violations of a run.
func Judge(r *Run) []Violation {
	var all []Violation
	for _, invariant := range Table() {
		if invariant.check == nil {
			continue
		}
		f := &found{id: invariant.ID}
		invariant.check(r, f)
		all = append(all, f.all...)
	}
	return all
}
