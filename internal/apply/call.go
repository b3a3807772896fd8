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

// errNotBegun means that no call was made because the context of the round had ended.
var errNotBegun = errors.New("the round ended before the call")

// call is the work on one object: reads, comparison and write, or a deletion. The table's lock guards all fields
// that change.
type call struct {
	key string
	// what it does, for errors and logs.
	what string
	// since is when it was given a place; zero before.
	since time.Time
	// retries is the failure that it retries, if any.
	retries error
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
	settled *settled
	// gone: the object was deleted.
	gone bool
}

// begin starts the work on an object, unless that has a call out already: then it returns that one.
func (a *Applier) begin(ctx context.Context, object client.Object, what string, work func(context.Context, *call) outcome) *call {
	c, isNew := a.table.begin(key(object), what)
	if !isNew {
		return c
	}
	go func() {
		found := outcome{}
		release, err := a.place(ctx, c)
		if err == nil {
			found = work(ctx, c)
			release()
		} else {
			found.Err = fmt.Errorf("%s: %w", what, err)
		}
		if a.table.finish(c, found) {
			a.events.Notify()
		}
	}()
	return c
}

// place waits for one of the Parallel places. The call keeps it until it is released, but no longer than Patience, so
// that calls that hang keep no others from being made. Those are bounded by the number of objects.
func (a *Applier) place(ctx context.Context, c *call) (func(), error) {
	select {
	case a.places <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", errNotBegun, context.Cause(ctx))
	}
	a.table.placed(c)
	release := sync.OnceFunc(func() { <-a.places })
	patience := time.AfterFunc(a.timing.Patience, release)
	return func() {
		patience.Stop()
		release()
	}, nil
}

// ask makes one call to a cache or the API server, which goes on until Deadline when the context ends. Its error
// begins with what the call is for.
func (a *Applier) ask(ctx context.Context, what string, do func(context.Context) error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w: %w", what, errNotBegun, context.Cause(ctx))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.timing.Deadline)
	defer cancel()
	if err := do(ctx); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// await returns the results of the calls, in their order, when all that have begun with it are done or Patience is
// over. Those of an earlier round have outlasted that, and are not waited for.
func (a *Applier) await(ctx context.Context, calls []*call) []Result {
	patience, cancel := context.WithTimeout(ctx, a.timing.Patience)
	defer cancel()
	results := make([]Result, len(calls))
	for i, c := range calls {
		if !a.table.isLate(c) {
			select {
			case <-c.done:
			case <-patience.Done():
			}
		}
		result, newlyLate := a.table.take(c)
		if newlyLate && errors.Is(result.Err, ErrOutstanding) {
			log.FromContext(ctx).Info("The API server has not answered yet", "call", c.what)
		}
		results[i] = result
	}
	return results
}
