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

// errNotStarted means that no call was made because the context of the round had ended.
var errNotStarted = errors.New("the round ended before the call")

// call is the work on one object: reads, comparison and write, or a deletion. The table's lock guards all fields
// that change.
type call struct {
	key string
	// what it does, for errors and logs.
	description string
	// since is when it was given a place; zero before.
	started time.Time
	// retries is the failure that it retries, if any.
	retried error
	// late: its round has returned without its result.
	late bool
	// result is set once, before done is closed.
	result Result
	done   chan struct{}
}

// outcome is the result of a call, and what is to be recorded of it.
type outcome struct {
	Result
	// recorded: the error is the recorded one; no call was made.
	recorded bool
	// attempt is what was tried, or compared; failed: a call was, which is not to be repeated before its back-off is over.
	attempt string
	failed  bool
	// version is what a write has made of the object, settled what a comparison has found in sync.
	version string
	inSync  *comparison
	// gone: the object was deleted.
	deleted bool
}

// begin starts the work on an object, unless that has a call out already: then it returns that one.
func (a *Applier) enqueue(ctx context.Context, object client.Object, description string, work func(context.Context, *call) outcome) *call {
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

// place waits for one of the MaxCalls slots. The call keeps it until it is released, but no longer than RoundTimeout, so
// that calls that hang keep no others from being made. Those are bounded by the number of objects.
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

// ask makes one call to a cache or the API server, which goes on until Deadline when the context ends. Its error
// begins with what the call is for.
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

// await returns the results of the calls, in their order, when all that have begun with it are done or RoundTimeout is
// over. Those of an earlier round have outlasted that, and are not waited for.
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
		result, newlyLate := a.table.resultOf(c)
		if newlyLate && errors.Is(result.Err, ErrInFlight) {
			log.FromContext(ctx).Info("The API server has not answered yet", "call", c.description)
		}
		results[i] = result
	}
	return results
}
