package fault

import (
	"sync"
	"time"
)

// Phase is a moment in the life of a request.
type Phase string

const (
	// Before: the request has reached the proxy, but not the API server.
	Before Phase = "before"
	// After: the API server has answered, and the client has not seen it.
	After Phase = "after"
	// Done: the client has been sent the answer.
	Done Phase = "done"
)

// Rule says what goes wrong with which requests.
type Rule struct {
	Match Match
	Phase Phase
	// From is the first of the requests that match that the rule acts on, counted from 1; 0 is the first too. Count is
	// on how many it acts from there; 0 is all.
	From, Count int64
	Action      Action
	// Stream is for watches that match: what becomes of their frames.
	Stream Stream
}

// Action is what happens to a request; the zero value is nothing. Several fields act in their order here.
type Action struct {
	// Call is called first, such as to kill the operator.
	Call func()
	// Delay is how long the request or the answer is held back.
	Delay time.Duration
	// Drop ends the connection: at Before the API server never sees the request, at After the client never learns that it
	// succeeded.
	Drop bool
	// Status answers with this HTTP status instead, with a Retry-After of so many seconds if that is not 0.
	Status, RetryAfter int
	// Garbage answers with a body that cannot be read.
	Garbage bool
	// Version has a list read the world as of this resourceVersion, which is how it was some time ago; a watch that would
	// list first is refused, so that its client lists.
	Version string
}

// Stream is what becomes of the frames of a watch; the zero value lets them pass.
type Stream struct {
	// Hold passes no frame while the rule is in force, and all of them afterwards.
	Hold bool
	// Silence drops every frame.
	Silence bool
	// NoBookmarks drops bookmarks; NoInitialEnd only the one that says that the initial events are over.
	NoBookmarks, NoInitialEnd bool
	// Drop is how many events are dropped, after the first From of the rule; bookmarks do not count.
	Drop int
	// Twice passes each event twice.
	Twice bool
	// Delay holds back each event for this long.
	Delay time.Duration
	// Cut ends the watch after this time.
	Cut time.Duration
	// Gone answers a watch that begins from a version with the error 410.
	Gone bool
}

// active is a rule in force.
type active struct {
	Rule

	lock sync.Mutex
	hits int64
	// struck: the rule has acted on a request or a frame.
	struck bool
	// dropped counts the events that Stream.Drop has taken.
	dropped int
	// over is closed when the rule is taken back.
	over chan struct{}
}

// hit counts a request that matches, and reports whether the rule acts on it.
func (a *active) hit() bool {
	a.lock.Lock()
	defer a.lock.Unlock()
	a.hits++
	first := max(a.From, 1)
	acts := a.hits >= first && (a.Count == 0 || a.hits < first+a.Count)
	a.struck = a.struck || acts
	return acts
}

// strike notes that the rule has acted on a frame.
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

// rules are those in force, of which a request looks up its own.
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

// of are the rules about a request, at whatever phase.
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
