package validate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/wait"
)

// Defaults of Run.
const (
	DefaultInterval       = time.Second
	DefaultMaxInterval    = 30 * time.Second
	DefaultAttemptTimeout = time.Minute
)

// killGrace is how long a check may take to end once it is cancelled.
const killGrace = 2 * time.Second

// Check is one attempt. It returns what the marker tells besides its proof, or why the component
// does not work, in words that stay the same as long as the cause does.
type Check func(ctx context.Context) ([]marker.Assignment, error)

// awaiter is the error of a check that is told when another attempt is worth while.
type awaiter interface {
	error
	// await blocks until then, or until ctx ends. It returns false at once where it cannot be told:
	// then the usual pause follows.
	await(ctx context.Context) bool
}

// Companion is a marker that is proven with the component's: removed with it, and written right
// before it, so that who waits for the component's marker finds this one too.
type Companion struct {
	Marker labels.Marker
	// Check is called after the component's, with what that one found. It tells whether the marker
	// applies to this node; where it does, an error says why it is not true yet.
	Check func(found []marker.Assignment) (applies bool, err error)
}

// awaitFile is the error of a check that cannot succeed before a file changes.
type awaitFile struct {
	path   string
	reason string
	// until returns nil once the next attempt is worth its while.
	until func() error
}

func (a *awaitFile) Error() string { return a.reason }

// awaitExistence returns the error of a check that cannot succeed before there is a file at path.
func awaitExistence(path, reason string) error {
	return &awaitFile{path: path, reason: reason, until: func() error {
		_, err := os.Stat(path)
		return err
	}}
}

func (a *awaitFile) await(ctx context.Context) bool {
	waiter := wait.Waiter{Dir: filepath.Dir(a.path), What: a.path, Log: slog.New(slog.DiscardHandler)}
	// Whether the file came or the time is over, the next attempt finds out.
	_ = waiter.Until(ctx, a.until)
	return true
}

// Run proves one component.
type Run struct {
	Component labels.Marker
	Markers   marker.Dir
	Check     Check
	// Companions are proven by the same attempts; may be empty.
	Companions []Companion
	// Interval is the pause after the first failure; it doubles up to MaxInterval. A check that
	// awaits a file or its Node pauses until that changes, at most MaxInterval.
	Interval, MaxInterval time.Duration
	// AttemptTimeout bounds one attempt.
	AttemptTimeout time.Duration
	// Log gets a line for each new reason and for the result.
	Log *slog.Logger

	// renewed tells that the component was proved before, in this boot and for this driver.
	renewed bool
	// started is when Prove began, for labels.StartedAtKey.
	started time.Time
}

// Prove removes the component's marker, so that a marker of an earlier run cannot hide a failure,
// and those of its companions, and repeats the check until it succeeds; then it writes the marker, last. It fails only when ctx
// ends or a file cannot be written; the error is one sentence with the cause and the remedy, and is
// also left in the component's reason file.
func (r Run) Prove(ctx context.Context) error {
	_, stale := r.Markers.Read(r.Component)
	r.renewed = stale == nil
	r.started = time.Now()
	if err := r.Markers.Remove(r.Component); err != nil {
		return err
	}
	for _, companion := range r.Companions {
		if err := r.Markers.Remove(companion.Marker); err != nil {
			return err
		}
	}
	heard := &reasons{log: r.Log}
	for pause := r.Interval; ; {
		err := r.attempt(ctx, heard)
		if err == nil {
			r.Log.Info(string(r.Component) + " is validated")
			return r.Markers.RemoveReason(r.Component)
		}
		if ctx.Err() != nil {
			return r.giveUp(context.Cause(ctx), heard.last)
		}
		heard.note(err)
		pause = r.pause(ctx, err, pause)
	}
}

// attempt makes one attempt and bounds it. A process that hangs in the kernel cannot be killed, as
// nvidia-smi on a broken GPU: then no second one is started beside it, and only ctx ends the wait.
func (r Run) attempt(ctx context.Context, heard *reasons) error {
	bounded, cancel := context.WithTimeoutCause(ctx, r.AttemptTimeout,
		fmt.Errorf("it does not end within %s; see the kernel log for Xid errors of the GPU", r.AttemptTimeout))
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- r.prove(bounded) }()
	select {
	case err := <-done:
		return err
	case <-bounded.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(killGrace):
	}
	hung := errors.New("the check hangs and cannot be killed; see the kernel log for Xid errors of the GPU and reboot the node")
	if ctx.Err() == nil {
		heard.note(hung)
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return hung
	}
}

// prove checks and writes the markers, for the driver that was present the whole time.
func (r Run) prove(ctx context.Context) error {
	before, err := r.Markers.DriverInstance()
	if err != nil {
		return err
	}
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
	if r.renewed {
		assignments = append(assignments, marker.Assignment{Key: labels.RenewedKey, Value: labels.True})
	}
	since := marker.Assignment{Key: labels.StartedAtKey, Value: strconv.FormatInt(r.started.Unix(), 10)}
	for _, companion := range companions {
		if err := r.Markers.Write(companion, []marker.Assignment{since}, after); err != nil {
			return err
		}
	}
	return r.Markers.Write(r.Component, slices.Concat(assignments, []marker.Assignment{since}), after)
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
		// Bounded, since there may be another way to succeed by then: a driver on the host.
		bounded, cancel := context.WithTimeout(ctx, r.MaxInterval)
		defer cancel()
		if event.await(bounded) {
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

func (r Run) giveUp(cause, reason error) error {
	if reason == nil {
		reason = errors.New("the first check was interrupted; raise the timeout")
	}
	err := fmt.Errorf("%s is not validated (%w): %w", r.Component, cause, reason)
	if writeErr := r.Markers.WriteReason(r.Component, err.Error()); writeErr != nil {
		r.Log.Warn("the reason is only in this log", "error", writeErr)
	}
	return err
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
