package apply

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// errNotStarted means that the context ended before the call was made.
var errNotStarted = errors.New("cancelled before the request was sent")

// call is the work on one object: reads, comparison and write, or a deletion. Fields that change are guarded by the
// lock of the table.
type call struct {
	key string
	// description is for errors and logs, such as "applying ConfigMap a".
	description string
	// started is when it acquired its slot; zero before.
	started time.Time
	// retried is the earlier failure that it retries, if any.
	retried error
	// late: its round has returned without its result.
	late bool
	// result is set once, before done is closed.
	result Result
	done   chan struct{}
}

// outcome is the result of a call, and what the table records about it.
type outcome struct {
	Result
	// recorded: the error is a recorded one; no call was made.
	recorded bool
	// attempt is what was tried or compared. failed: the call failed, and is not repeated before its back-off is over.
	attempt string
	failed  bool
	// version is the resource version after a write. inSync is a comparison without a difference.
	version string
	inSync  *comparison
	deleted bool
}

// enqueue starts the work on an object in the background, or returns the call that is already in flight for it.
func (a *Applier) enqueue(
	ctx context.Context, object client.Object, description string, work func(context.Context, *call) outcome,
) *call {
	c, isNew := a.table.enqueue(key(object), description)
	if !isNew {
		return c
	}
	go func() {
		found := outcome{}
		release, err := a.acquireSlot(ctx, c)
		if err == nil {
			found = work(ctx, c)
			release()
		} else {
			found.Err = fmt.Errorf("%s: %w", description, err)
		}
		if a.table.finish(c, found) {
			a.events.Notify()
		}
	}()
	return c
}

// acquireSlot waits for one of the MaxCalls slots and returns the function that releases it. A slot is released after
// RoundTimeout at the latest, so that hanging calls do not block others; their number is bounded by that of the
// objects.
func (a *Applier) acquireSlot(ctx context.Context, c *call) (func(), error) {
	select {
	case a.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", errNotStarted, context.Cause(ctx))
	}
	a.table.markStarted(c)
	release := sync.OnceFunc(func() { <-a.slots })
	timer := time.AfterFunc(a.timing.RoundTimeout, release)
	return func() {
		timer.Stop()
		release()
	}, nil
}

// request makes one call to the cache or the API server. It continues until Deadline even if the context ends. Errors
// begin with the description.
func (a *Applier) request(ctx context.Context, description string, do func(context.Context) error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w: %w", description, errNotStarted, context.Cause(ctx))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.timing.Deadline)
	defer cancel()
	if err := do(ctx); err != nil {
		return fmt.Errorf("%s: %w", description, err)
	}
	return nil
}

// await returns the results of the calls in order, once all calls of this round have ended or RoundTimeout is over.
// Calls of earlier rounds are not waited for.
func (a *Applier) await(ctx context.Context, calls []*call) []Result {
	waitCtx, cancel := context.WithTimeout(ctx, a.timing.RoundTimeout)
	defer cancel()
	results := make([]Result, len(calls))
	for i, c := range calls {
		if !a.table.isLate(c) {
			select {
			case <-c.done:
			case <-waitCtx.Done():
			}
		}
		result, newlyLate := a.table.takeResult(c)
		if newlyLate && errors.Is(result.Err, ErrInFlight) {
			log.FromContext(ctx).Info("The API server has not answered yet; still waiting", "call", c.description)
		}
		results[i] = result
	}
	return results
}
