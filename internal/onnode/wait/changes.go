package wait

import (
	"context"
	"log/slog"
	"time"
)

// Changes returns a channel that receives at once, after each change in dir, and from time to time as a
// safety net; so the receiver looks at what it wants to know. Changes that nobody has received yet are
// one. dir need not exist. The channel is never closed, and silent once ctx has ended. Log gets a line
// where the kernel grants no file events, which makes the safety net do the work.
func Changes(ctx context.Context, dir string, log *slog.Logger) <-chan struct{} {
	changes := make(chan struct{}, 1)
	go Waiter{Dir: dir, Log: log}.report(ctx, changes)
	return changes
}

func (w Waiter) report(ctx context.Context, changes chan<- struct{}) {
	w.setDefaults()
	poll := time.NewTicker(w.poll)
	defer poll.Stop()
	watched, err := w.watch()
	if err != nil {
		watched = &watcher{}
		w.warnEventless(err, poll)
	}
	defer func() { watched.close() }()
	for {
		// Watch first, report second: a change between the two is an event.
		if err := watched.follow(w.Dir); err != nil {
			watched.close()
			watched = &watcher{}
			w.warnEventless(err, poll)
		}
		select {
		case changes <- struct{}{}:
		default:
		}
		select {
		case <-watched.events():
		case err := <-watched.overflows():
			w.Log.Warn("file events were lost, so look again", "error", err)
		case <-poll.C:
		case <-ctx.Done():
			return
		}
	}
}
