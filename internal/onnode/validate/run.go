package validate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
)

// Defaults of Run.
const (
	DefaultInterval       = time.Second
	DefaultMaxInterval    = 30 * time.Second
	DefaultAttemptTimeout = time.Minute
	DefaultFailAfter      = time.Minute
)

// Check is one attempt. It returns what the marker tells besides its proof, or why the component
// does not work, in words that stay the same as long as the cause does.
type Check func(ctx context.Context) ([]marker.Assignment, error)

// Companion is a marker that is proven with the component's: removed with it, and written right
// before it, so that who waits for the component's marker finds this one too.
type Companion struct {
	Marker labels.Marker
	// Check is called after the component's, with what that one found. It tells whether the marker
	// applies to this node; where it does, an error says why it is not true yet.
	Check func(found []marker.Assignment) (applies bool, err error)
}

// Run proves one component.
type Run struct {
	Component labels.Marker
	Markers   marker.Dir
	Check     Check
	// Companions are proven by the same attempts; may be empty.
	Companions []Companion
	// Interval is the pause after the first failure; it doubles up to MaxInterval. A check that
	// awaits a file pauses until that changes, at most MaxInterval; one that awaits its Node, until that
	// changes or the API server ends the watch. No pause outlasts FailAfter.
	Interval, MaxInterval time.Duration
	// AttemptTimeout bounds one attempt.
	AttemptTimeout time.Duration
	// FailAfter is how long the attempts may fail one after the other before Prove gives up: what it
	// says then is seen in the pod's status, and in a new container the runtime injects the driver
	// anew. Time spent on what another component is still to bring does not count. 0 is never.
	FailAfter time.Duration
	// Log gets a line for each new reason and for the result.
	Log *slog.Logger
}

// Prove removes the component's marker, so that a marker of an earlier run cannot hide a failure,
// and those of its companions, and repeats the check until it succeeds; then it writes the marker,
// last. It fails when ctx ends, when it gives up after FailAfter, or when a file cannot be written; the
// error is one sentence with the cause and the remedy, and is also left in the component's reason file.
// Since when it has tried is left to the next prover in labels.ProvingSuffix, removed on success.
func (r Run) Prove(ctx context.Context) error {
	climb := r.climb()
	// Before the marker is removed, which tells it too. Where the instance is not known yet, the attempt is
	// the one to say why.
	if instance, err := r.Markers.DriverInstance(); err == nil {
		climb.note(instance)
	}
	if err := r.Markers.Remove(r.Component); err != nil {
		return err
	}
	for _, companion := range r.Companions {
		if err := r.Markers.Remove(companion.Marker); err != nil {
			return err
		}
	}
	heard := &reasons{log: r.Log}
	patience := patience{most: r.FailAfter}
	for pause := r.Interval; ; {
		began := time.Now()
		err := r.attempt(ctx, climb, heard)
		if err == nil {
			climb.end()
			r.Log.Info(string(r.Component) + " is validated")
			return r.Markers.RemoveReason(r.Component)
		}
		if ctx.Err() != nil {
			return r.interrupted(context.Cause(ctx), heard.last)
		}
		heard.note(err)
		if patience.over(began, err) {
			return r.giveUp(err)
		}
		// Whatever is awaited, it is time for the last attempt when the patience ends.
		bounded, cancel := patience.bound(ctx)
		pause = r.pause(bounded, err, pause)
		cancel()
	}
}

// attempt makes one attempt. No second one is started beside one that hangs: only ctx ends that wait.
func (r Run) attempt(ctx context.Context, climb *climb, heard *reasons) error {
	return Bounded(ctx, r.AttemptTimeout, func(ctx context.Context) error { return r.prove(ctx, climb) }, heard.note)
}

// prove checks and writes the markers, for the driver that was present the whole time.
func (r Run) prove(ctx context.Context, climb *climb) error {
	before, err := r.Markers.DriverInstance()
	if err != nil {
		return err
	}
	climb.note(before)
	assignments, err := r.Check(ctx)
	if err != nil {
		return err
	}
	companions, err := r.companions(assignments)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		// Too late: somebody may have removed the markers by now.
		return context.Cause(ctx)
	}
	after, err := r.Markers.DriverInstance()
	if err != nil {
		return err
	}
	if before != after {
		return errors.New("the driver container was replaced during the check")
	}
	for _, companion := range companions {
		if err := r.Markers.Write(companion, climb.since(), after); err != nil {
			return err
		}
	}
	return r.Markers.Write(r.Component, slices.Concat(assignments, climb.assignments()), after)
}

// companions returns the markers that are true with the component's.
func (r Run) companions(found []marker.Assignment) ([]labels.Marker, error) {
	var markers []labels.Marker
	for _, companion := range r.Companions {
		applies, err := companion.Check(found)
		if err != nil {
			return nil, err
		}
		if applies {
			markers = append(markers, companion.Marker)
		}
	}
	return markers, nil
}

// pause blocks until it is time for the next attempt, and returns the pause after that one.
func (r Run) pause(ctx context.Context, reason error, pause time.Duration) time.Duration {
	var event awaiter
	if errors.As(reason, &event) {
		if event.await(ctx, r.MaxInterval) {
			return r.Interval
		}
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return min(2*pause, r.MaxInterval)
}

// interrupted returns the error of a run that was ended from outside.
func (r Run) interrupted(cause, reason error) error {
	if reason == nil {
		reason = errors.New("the first check was interrupted; raise the timeout")
	}
	return r.giveUp(fmt.Errorf("%s is not validated (%w): %w", r.Component, cause, reason))
}

// giveUp leaves the reason in its file and returns it. It is all that is said: where it is shown, the
// container is named, and there is little room.
func (r Run) giveUp(reason error) error {
	if err := r.Markers.WriteReason(r.Component, reason.Error()); err != nil {
		r.Log.Warn("the reason is only in this log", "error", err)
	}
	return reason
}

// patience is how long attempts may fail one after the other.
type patience struct {
	// most is zero where it has no end.
	most time.Duration
	// since is when the first of these attempts began.
	since time.Time
}

// over tells whether the patience ends with the attempt that began then and failed for this reason.
func (p *patience) over(began time.Time, reason error) bool {
	switch {
	case isOnItsWay(reason):
		p.since = time.Time{}
		return false
	case p.since.IsZero():
		p.since = began
	}
	return p.most > 0 && time.Since(p.since) >= p.most
}

// bound returns a context that ends with the patience, if that has an end.
func (p *patience) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if p.most == 0 || p.since.IsZero() {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, p.since.Add(p.most))
}

// reasons logs a reason when it differs from the last one.
type reasons struct {
	log  *slog.Logger
	last error
}

func (s *reasons) note(reason error) {
	if s.last == nil || s.last.Error() != reason.Error() {
		s.log.Info("not yet", "because", reason)
	}
	s.last = reason
}
