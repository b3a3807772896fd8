package wait

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

const (
	// safetyPoll is how often the condition is checked in addition to the events.
	safetyPoll = 30 * time.Second
	// eventlessPoll is the same where the kernel grants no inotify instance or watch.
	eventlessPoll = 2 * time.Second
	// remindEvery is how often a wait that lasts is logged.
	remindEvery = time.Minute
)

// Sleep waits, and reports whether ctx goes on.
func Sleep(ctx context.Context, period time.Duration) bool {
	timer := time.NewTimer(period)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// Waiter describes a wait.
type Waiter struct {
	// Dir is the directory whose changes may make the condition true.
	Dir string
	// What is the name of the condition in the log and in the error.
	What string
	// Log gets one line when the wait starts, none if the condition is already true, and one line each
	// minute.
	Log *slog.Logger

	// Tests shorten these, or disable inotify.
	poll, remind time.Duration
	watch        func() (*watcher, error)
}

// Until blocks until condition returns nil. The error of condition is one clause why it is not true yet. Until
// fails only when ctx ends; its error is one clause too, with ctx's cause and the last reason.
func (w Waiter) Until(ctx context.Context, condition func() error) error {
	w.setDefaults()
	changes := w.open()
	defer changes.close()
	remind := time.NewTicker(w.remind)
	defer remind.Stop()

	since := time.Now()
	for announced := false; ; {
		// Watch first, look second: a change between the two is an event.
		changes.follow()
		reason := condition()
		if reason == nil {
			return nil
		}
		if !announced {
			w.Log.Info("waiting for "+w.What, "in", w.Dir, "because", reason)
			announced = true
		}
		if err := w.block(ctx, changes, remind, since, reason); err != nil {
			return err
		}
	}
}

// block returns nil when it is time to look again.
func (w *Waiter) block(
	ctx context.Context, changes *changes, remind *time.Ticker, since time.Time, reason error,
) error {
	for {
		select {
		case <-changes.events():
			return nil
		case err := <-changes.overflows():
			w.Log.Warn("file events were lost, looking again", "error", err)
			return nil
		case <-changes.poll.C:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("%w after waiting %s for %s: %w",
				context.Cause(ctx), time.Since(since).Round(time.Second), w.What, reason)
		case <-remind.C:
			w.Log.Info("still waiting for "+w.What,
				"since", since.UTC().Format(time.RFC3339), "because", reason)
		}
	}
}

func (w *Waiter) setDefaults() {
	if w.poll == 0 {
		w.poll = safetyPoll
	}
	if w.remind == 0 {
		w.remind = remindEvery
	}
	if w.watch == nil {
		w.watch = newWatcher
	}
}
