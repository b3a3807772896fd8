package fault

import (
	"sync"
	"time"
)

// Phase is a phase of a request.
type Phase string

const (
	// Before: the request has reached the proxy, but not the API server.
	Before Phase = "before"
	// After: the API server has responded, but the client has not got the response.
	After Phase = "after"
	// Done: the response has been sent to the client.
	Done Phase = "done"
)

// Rule injects a fault into requests.
type Rule struct {
	Match Match
	Phase Phase
	// From is the ordinal of the first matching request that the rule acts on, from 1; 0 is also the first. Count is on
	// how many it acts; 0 is all.
	From, Count int64
	Action      Action
	// Stream is the fault in the frames of matching watches.
	Stream Stream
}

// Action is the fault of a request; the zero value is none. Several fields act in their order here.
type Action struct {
	// Call is called first, for example to kill the operator.
	Call func()
	// Delay is how long the request or the response is delayed.
	Delay time.Duration
	// Drop closes the connection: at Before the API server never gets the request, at After the client never learns that
	// it succeeded.
	Drop bool
	// Status responds with this HTTP status instead, and with RetryAfter seconds if that is not 0.
	Status, RetryAfter int
	// Garbage responds with a body that cannot be decoded.
	Garbage bool
	// Version makes a list read the older state at this resourceVersion; a watch that would list first is refused, so
	// that its client lists.
	Version string
}

// Stream is the fault in the frames of a watch; the zero value passes them.
type Stream struct {
	// Hold passes no frame while the rule is active, and all of them afterwards.
	Hold bool
	// Silence drops every frame.
	Silence bool
	// NoBookmarks drops bookmarks; NoInitialEnd only the one that ends the initial events.
	NoBookmarks, NoInitialEnd bool
	// Drop is how many events are dropped, after the first From of the rule; bookmarks do not count.
	Drop int
	// Twice passes each event twice.
	Twice bool
	// Delay delays each event by this time.
	Delay time.Duration
	// Cut ends the watch after this time.
	Cut time.Duration
	// Gone responds with the error 410 to a watch that starts from a version.
	Gone bool
}

// active is an active rule.
type active struct {
	Rule

	lock sync.Mutex
	hits int64
	// struck: the rule has acted on a request or a frame.
	struck bool
	// dropped counts the events that Stream.Drop has taken.
	dropped int
	// over is closed when the rule is removed.
	over chan struct{}
}

// hit counts a matching request, and reports whether the rule acts on it.
func (a *active) hit() bool {
	a.lock.Lock()
	defer a.lock.Unlock()
	a.hits++
	first := max(a.From, 1)
	acts := a.hits >= first && (a.Count == 0 || a.hits < first+a.Count)
	a.struck = a.struck || acts
	return acts
}

// strike records that the rule has acted on a frame.
func (a *active) strike() {
	a.lock.Lock()
	defer a.lock.Unlock()
	a.struck = true
}

func (a *active) hasStruck() bool {
	a.lock.Lock()
	defer a.lock.Unlock()
	return a.struck
}

// takesEvent reports whether the next event is dropped.
func (a *active) takesEvent() bool {
	a.lock.Lock()
	defer a.lock.Unlock()
	if a.dropped >= a.Stream.Drop {
		return false
	}
	a.dropped++
	return true
}

// rules are the active rules.
type rules struct {
	lock sync.Mutex
	all  []*active
}

func (r *rules) add(rule Rule) *active {
	a := &active{Rule: rule, over: make(chan struct{})}
	r.lock.Lock()
	defer r.lock.Unlock()
	r.all = append(r.all, a)
	return a
}

func (r *rules) remove(a *active) {
	r.lock.Lock()
	defer r.lock.Unlock()
	for i := range r.all {
		if r.all[i] == a {
			r.all = append(r.all[:i:i], r.all[i+1:]...)
			close(a.over)
			return
		}
	}
}

// of returns the rules for a request, of all phases.
func (r *rules) of(request Request) []*active {
	r.lock.Lock()
	defer r.lock.Unlock()
	var found []*active
	for _, a := range r.all {
		if a.Match.Matches(request) {
			found = append(found, a)
		}
	}
	return found
}
