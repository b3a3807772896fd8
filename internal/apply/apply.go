package apply

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/clusterpolicy/gpu-operator/internal/notify"
)

// ErrConflict means that an object of the wanted name belongs to somebody else.
var ErrConflict = errors.New("belongs to somebody else")

// ErrInFlight means that the API server has not answered yet. The call goes on in the background, up to
// Timing.Deadline, and Events has an event once it is answered.
var ErrInFlight = errors.New("no answer from the API server")

// errTerminating means that an object still has an owner that is gone; the garbage collector removes it.
var errTerminating = errors.New("is still being removed with an earlier ClusterPolicy")

// Timing are the waits of an Applier, and how many calls it makes at once. Tests shorten them.
type Timing struct {
	// RoundTimeout is how long a round waits for the answers to its calls, and how long a call counts against MaxCalls.
	RoundTimeout time.Duration
	// Deadline of one call to the API server; NamespaceDeadline is that of Privileged, which a pass waits for.
	Deadline, NamespaceDeadline time.Duration
	// FirstRetry and LastRetry bound the back-off of an object after a call that failed, or a write that came back
	// altered. It doubles from one to the other.
	FirstRetry, LastRetry time.Duration
	// MaxCalls is how many calls are made at once.
	MaxCalls int
}

// DefaultTiming returns the waits of production. The deadline is the longest timeout that a webhook can have.
func DefaultTiming() Timing {
	return Timing{
		RoundTimeout: 1500 * time.Millisecond, Deadline: 30 * time.Second, NamespaceDeadline: 3 * time.Second,
		FirstRetry: time.Second, LastRetry: 15 * time.Second, MaxCalls: 16,
	}
}

// Applier writes stack objects. Its methods may be called concurrently.
type Applier struct {
	client client.Client
	live   client.Reader
	clock  clock.PassiveClock
	timing Timing
	table  *table
	// slots are taken by calls; see place.
	slots  chan struct{}
	events notify.Signal
}

// New returns an Applier that writes with the client and reads from the client's cache, and with live from the API
// server what the cache does not hold: it holds only what carries the operator's label.
func New(c client.Client, live client.Reader, clk clock.PassiveClock, timing Timing) *Applier {
	return &Applier{
		client: c, live: live, clock: clk, timing: timing, table: newTable(clk, timing.FirstRetry, timing.LastRetry),
		slots: make(chan struct{}, timing.MaxCalls), events: notify.New(),
	}
}

// Events has an event when a call that outlasted its round has been answered: another pass is due. It is for one
// receiver, and buffers one event.
func (a *Applier) Events() <-chan event.GenericEvent { return a.events.Events() }

// RetryAfter returns after how long the next call that is held back by its back-off is due, or 0 if none is. It is
// to be asked after a pass has called Round, and counts on another pass by then.
func (a *Applier) RetryAfter() time.Duration { return a.table.retryAfter() }

// Result is what came of one object.
type Result struct {
	// Wrote: it was written, or written so lately that the cache does not show it yet.
	Wrote bool
	// Repair is the drift that the write has set right, nil if there was none in the fields that decide where pods run.
	Repair *Repair
	// Err is ErrConflict where the object belongs to another owner, ErrInFlight where the API server has not
	// answered yet, an AlteredError where it came back otherwise than it was applied, or the failure of a call.
	Err error
}

// Round applies the objects concurrently and returns, in their order, what came of each. It returns when all calls
// are answered, RoundTimeout is over, or the context ends; no call begins after that last.
//
// An object is written if the live one lacks the intent's digest or any leaf of the intent, or has more than the intent
// in the fields that decide where pods run. One that exists and is
// not owned by the policy with this UID is not touched: ErrConflict, unless it does what is wanted. After a failed
// call, or a write that came back altered, the object has no further call until its back-off is over or its intent
// changes; rounds return the recorded error until then.
//
// An object has at most one call at a time. A call that outlasts its round goes on, even after the context has
// ended, until Deadline at the latest. Rounds return ErrInFlight for the object meanwhile, or, where the call
// retries a failed one, that failure, so that a webhook that times out again and again is reported alike all along.
// A failure that comes late is returned by the next round, even if its back-off is over by then.
//
// The intents must not change any more, and must not repeat an object.
func (a *Applier) ApplyAll(ctx context.Context, owner types.UID, intents []client.Object) []Result {
	a.table.sweep()
	calls := make([]*call, len(intents))
	for i, intent := range intents {
		calls[i] = a.enqueue(ctx, intent, "applying "+describe(intent), func(ctx context.Context, c *call) outcome {
			return a.sync(ctx, c, owner, intent)
		})
	}
	return a.await(ctx, calls)
}

// Differs reports whether Round would write, back-off aside, and fails where it would fail before it does. It waits
// at most RoundTimeout.
func (a *Applier) Differs(ctx context.Context, owner types.UID, intent client.Object) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, a.timing.RoundTimeout)
	defer cancel()
	live, err := read(ctx, a.client, intent)
	if live == nil && err == nil {
		live, err = read(ctx, a.live, intent)
	}
	switch {
	case err != nil:
		return false, fmt.Errorf("reading %s: %w", describe(intent), err)
	case live != nil && (a.table.isStale(intent, live) || a.table.isInSync(comparisonOf(owner, intent, live))):
		return false, nil
	}
	w, err := newWrite(owner, intent)
	if err != nil {
		return false, err
	}
	field, err := compare(owner, w, live)
	return field != nil, err
}
