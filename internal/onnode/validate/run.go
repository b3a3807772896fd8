package validate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/wait"
)

// Defaults of Run.
const (
	DefaultInterval       = time.Second
	DefaultMaxInterval    = 30 * time.Second
	DefaultAttemptTimeout = time.Minute
	DefaultFailAfter      = time.Minute
)

// Check is one attempt. It returns the marker's assignments, or why the component does not work, with a message that is
// stable for the same cause.
type Check func(ctx context.Context) ([]marker.Assignment, error)

// Companion is a marker that is validated together with the component's: removed with it, and written right before it,
// so that a container that waits for the component's marker finds this one too.
type Companion struct {
	Marker labels.Marker
	// Check is called after the component's, with its assignments. It reports whether the marker applies to
	// this node; if it does, an error is why it is not true yet.
	Check func(found []marker.Assignment) (applies bool, err error)
}

// Run validates one component.
type Run struct {
	Component labels.Marker
	Markers   marker.Dir
	Check     Check
	// Companions are validated by the same attempts; may be empty.
	Companions []Companion
	// Interval is the pause after the first failure; it doubles up to MaxInterval. A check that awaits a file
	// pauses until that changes, at most MaxInterval; one that awaits its Node, until that changes or the API
	// server ends the watch. No pause exceeds FailAfter.
	Interval, MaxInterval time.Duration
	// AttemptTimeout limits one attempt.
	AttemptTimeout time.Duration
	// FailAfter is how long attempts may fail one after the other before Validate fails: its error is shown
	// in the pod's status, and the runtime injects the driver again into a new container. Time spent waiting
	// for another component does not count. 0 means never.
	FailAfter time.Duration
	// Validated, if given, is called with the driver instance for which the component is validated, once its
	// marker is written.
	Validated func(driverInstance string)
	// Log gets a line for each new reason and for the result.
	Log *slog.Logger
}

// Validate removes the component's marker, so that a marker of an earlier run cannot hide a failure, and those of its
// companions, and repeats the check until it succeeds; then it writes the marker, last. It fails when ctx ends, after
// FailAfter, or when a file cannot be written; the error is one sentence with the cause and the remedy, and is also
// written to the component's reason file. The start is left to the next run in labels.ProgressSuffix, removed on
// success.
func (r Run) Validate(ctx context.Context) error {
	progress := r.progress()
	// Before the marker is removed, which has it too. If the instance is unknown, the attempt reports why.
	if driverInstance, err := r.Markers.DriverInstance(); err == nil {
		progress.save(driverInstance)
	}
	if err := r.Markers.Remove(r.Component); err != nil {
		return err
	}
	for _, companion := range r.Companions {
		if err := r.Markers.Remove(companion.Marker); err != nil {
			return err
		}
	}
	reasons := &reasons{log: r.Log}
	failing := failing{limit: r.FailAfter}
	for pause := r.Interval; ; {
		began := time.Now()
		err := r.attempt(ctx, progress, reasons)
		if err == nil {
			progress.end()
			r.Log.Info(string(r.Component) + " is validated")
			return r.Markers.RemoveReason(r.Component)
		}
		if ctx.Err() != nil {
			return r.failInterrupted(context.Cause(ctx), reasons.last)
		}
		reasons.note(err)
		failing.note(began, err)
		if failing.tooLong() {
			return r.fail(err)
		}
		// The last attempt is made when the limit is reached, whatever is awaited.
		bounded, cancel := failing.bound(ctx)
		pause = r.pause(bounded, err, pause)
		cancel()
	}
}

// attempt makes one attempt. No second one is started next to one that hangs: only ctx ends that wait.
func (r Run) attempt(ctx context.Context, progress *progress, reasons *reasons) error {
	check := func(ctx context.Context) error { return r.checkAndWrite(ctx, progress) }
	return Bounded(ctx, r.AttemptTimeout, check, reasons.note)
}

// checkAndWrite checks and writes the markers, if the driver was the same all the time.
func (r Run) checkAndWrite(ctx context.Context, progress *progress) error {
	before, err := r.Markers.DriverInstance()
	if err != nil {
		return err
	}
	progress.save(before)
	assignments, err := r.Check(ctx)
	if err != nil {
		return err
	}
	companions, err := r.companions(assignments)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		// Too late: another run may have removed the markers by now.
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
		if err := r.Markers.Write(companion, progress.since(), after); err != nil {
			return err
		}
	}
	if err := r.Markers.Write(r.Component, slices.Concat(assignments, progress.assignments()), after); err != nil {
		return err
	}
	if r.Validated != nil {
		r.Validated(after)
	}
	return nil
}

// companions returns the companion markers that are true.
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
	wait.Sleep(ctx, pause)
	return min(2*pause, r.MaxInterval)
}

// failInterrupted is fail for a run that ctx has ended.
func (r Run) failInterrupted(cause, reason error) error {
	if reason == nil {
		reason = errors.New("the first check was interrupted; raise the timeout")
	}
	return r.fail(fmt.Errorf("%s is not validated (%w): %w", r.Component, cause, reason))
}

// fail writes the reason to its file and returns it unchanged: the pod's status names the container anyway, and has
// little room.
func (r Run) fail(reason error) error {
	if err := r.Markers.WriteReason(r.Component, reason.Error()); err != nil {
		r.Log.Warn("the reason file cannot be written; the reason is only in this log", "error", err)
	}
	return reason
}

// failing is how long attempts have failed one after the other.
type failing struct {
	// limit is zero for none.
	limit time.Duration
	// since is when the first of these attempts began.
	since time.Time
}

// note notes an attempt that began then and failed for this reason.
func (f *failing) note(began time.Time, reason error) {
	switch {
	case isPending(reason):
		f.since = time.Time{}
	case f.since.IsZero():
		f.since = began
	}
}

// tooLong reports whether the limit is reached.
func (f *failing) tooLong() bool {
	return f.limit > 0 && !f.since.IsZero() && time.Since(f.since) >= f.limit
}

// bound returns a context that ends when the limit is reached.
func (f *failing) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if f.limit == 0 || f.since.IsZero() {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, f.since.Add(f.limit))
}

// reasons logs a reason when it differs from the last one.
type reasons struct {
	log  *slog.Logger
	last error
}

func (s *reasons) note(reason error) {
	if s.last == nil || s.last.Error() != reason.Error() {
		s.log.Info("not validated yet", "because", reason)
	}
	s.last = reason
}
