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

	"github.com/clusterpolicy/gpu-operator/internal/kube/drift"
	"github.com/clusterpolicy/gpu-operator/internal/kube/notify"
)

// ErrConflict means that an object of the same name exists and is not controlled by the policy.
var ErrConflict = errors.New("is not controlled by this ClusterPolicy")

// ErrInFlight means that the API server has not answered yet. The call continues in the background, for at most
// Timing.Deadline, and Events fires when it ends.
var ErrInFlight = errors.New("no answer from the API server")

// errTerminating means that the object's owner is deleted, and the garbage collector has not removed the object yet.
var errTerminating = errors.New("is still being deleted with an earlier ClusterPolicy, and is created again after " +
	"that: if this lasts, check its metadata.finalizers and that kube-controller-manager runs")

// Timing has the timeouts of an Applier and the limit of its concurrent calls. Tests shorten them.
type Timing struct {
	// RoundTimeout is how long ApplyAll and Prune wait for their calls, and how long a call counts against MaxCalls.
	RoundTimeout time.Duration
	// Deadline is the timeout of one call to the API server. NamespaceDeadline is that of SetPodSecurity, for which a pass
	// waits.
	Deadline, NamespaceDeadline time.Duration
	// FirstRetry and LastRetry bound the back-off of an object, which doubles with each failed call or altered write.
	FirstRetry, LastRetry time.Duration
	// MaxCalls is the number of concurrent calls.
	MaxCalls int
}

// DefaultTiming returns the values for production. Deadline is the longest timeout that a webhook can have.
func DefaultTiming() Timing {
	return Timing{
		RoundTimeout: 1500 * time.Millisecond, Deadline: 30 * time.Second, NamespaceDeadline: 3 * time.Second,
		FirstRetry: time.Second, LastRetry: 15 * time.Second, MaxCalls: 16,
	}
}

// Applier writes the objects of the stack. Its methods may be called concurrently.
type Applier struct {
	client client.Client
	live   client.Reader
	clock  clock.PassiveClock
	timing Timing
	table  *table
	// slots limits the concurrent calls; see acquireSlot.
	slots  chan struct{}
	events notify.Signal
}

// New returns an Applier that reads and writes with the client. Objects missing in the client's cache, which has only
// objects with the operator's label, are read with live from the API server.
func New(c client.Client, live client.Reader, clk clock.PassiveClock, timing Timing) *Applier {
	return &Applier{
		client: c, live: live, clock: clk, timing: timing, table: newTable(clk, timing.FirstRetry, timing.LastRetry),
		slots: make(chan struct{}, timing.MaxCalls), events: notify.New(),
	}
}

// Events fires when a call that outlasted its round has ended, so that another pass can report the result. It has one
// receiver and buffers one event.
func (a *Applier) Events() <-chan event.GenericEvent { return a.events.Events() }

// RetryAfter returns when the next call in back-off is due, or 0 if there is none. Call it after ApplyAll; it assumes
// another pass by then.
func (a *Applier) RetryAfter() time.Duration { return a.table.retryAfter() }

// Result is the outcome for one object.
type Result struct {
	// Wrote is true if the object was written, now or so recently that the cache does not show it yet.
	Wrote bool
	// Repair is the drift that was reverted, nil if there was none.
	Repair *drift.Repair
	// Err is ErrConflict if the object is not the policy's, ErrInFlight if the API server has not answered yet, an
	// AlteredError if the object was changed while it was written, or the error of a call.
	Err error
}

// ApplyAll applies the objects concurrently and returns their results in the same order. This is a round. It returns
// when all calls have ended, after RoundTimeout, or when the context ends. No call starts once the context has ended.
//
// An object is written if the live one has another digest, differs in a leaf of its intent, or has additions in the
// fields that decide on which nodes pods run. An existing object that the policy with this UID does not own is not
// touched: ErrConflict, unless it already does what the rendered one is for. After a failed call or an altered write,
// the object has no other call until its back-off is over or its intent changes; until then rounds return the recorded
// error.
//
// An object has at most one call in flight. A call that outlasts its round continues, even after the context has ended,
// until Deadline. Meanwhile rounds return ErrInFlight for the object or, if the call retries a failed one, that
// failure, so that a webhook that keeps timing out has one stable error. A failure that arrives late is returned by the
// next round, even if its back-off is over by then.
//
// The rendered objects must not change afterwards, and must not contain an object twice.
func (a *Applier) ApplyAll(ctx context.Context, owner types.UID, rendered []client.Object) []Result {
	a.table.sweep()
	calls := make([]*call, len(rendered))
	for i, object := range rendered {
		calls[i] = a.enqueue(ctx, object, "applying "+describe(object), func(ctx context.Context, c *call) outcome {
			return a.sync(ctx, c, owner, object)
		})
	}
	return a.await(ctx, calls)
}

// Differs reports whether ApplyAll would write the object, ignoring back-off. It returns the errors that ApplyAll
// returns before a write, and takes at most RoundTimeout.
func (a *Applier) Differs(ctx context.Context, owner types.UID, rendered client.Object) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, a.timing.RoundTimeout)
	defer cancel()
	live, err := read(ctx, a.client, rendered)
	if live == nil && err == nil {
		live, err = read(ctx, a.live, rendered)
	}
	switch {
	case err != nil:
		return false, fmt.Errorf("reading %s: %w", describe(rendered), err)
	case live != nil && (a.table.isStale(rendered, live) || a.table.isInSync(comparisonOf(owner, rendered, live))):
		return false, nil
	}
	field, err := Compare(owner, rendered, live)
	return field != nil, err
}
