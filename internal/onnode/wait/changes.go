package wait

import (
	"context"
	"log/slog"
	"time"
)

// Changes returns a channel that receives initially, after each change in dir, and every 30 s as a safety net;
// the receiver then reads what it needs. Changes that are not received yet are merged. dir need not exist. The
// channel is never closed, and receives nothing more once ctx has ended. Where the kernel grants no file events,
// Changes logs that and polls instead.
func Changes(ctx context.Context, dir string, log *slog.Logger) <-chan struct{} {
	changes := make(chan struct{}, 1)
	go Waiter{Dir: dir, Log: log}.report(ctx, changes)
	return changes
}

func (w Waiter) report(ctx context.Context, changes chan<- struct{}) {
	w.setDefaults()
	watched := w.open()
	defer watched.close()
	for {
		// Watch first, report second: a change between the two is an event.
		watched.follow()
		select {
		case changes <- struct{}{}:
		default:
		}
		select {
		case <-watched.events():
		case err := <-watched.overflows():
			w.Log.Warn("file events were lost, looking again", "error", err)
		case <-watched.poll.C:
		case <-ctx.Done():
			return
		}
	}
}

// changes are the events of a directory, and polling for those that inotify does not report.
type changes struct {
	*watcher
	waiter *Waiter
	poll   *time.Ticker
}

// open returns the changes of the directory; the caller closes them.
func (w *Waiter) open() *changes {
	c := &changes{waiter: w, poll: time.NewTicker(w.poll)}
	var err error
	if c.watcher, err = w.watch(); err != nil {
		c.loseEvents(err)
	}
	return c
}

// follow watches the directory as it is now. Call it before each look at the directory.
func (c *changes) follow() {
	if err := c.watcher.follow(c.waiter.Dir); err != nil {
		c.watcher.close()
		c.loseEvents(err)
	}
}

// loseEvents falls back to polling: without inotify a hand-over takes seconds, which is logged but never fails.
func (c *changes) loseEvents(err error) {
	c.watcher = &watcher{}
	c.poll.Reset(min(c.waiter.poll, eventlessPoll))
	c.waiter.Log.Warn("the node grants no file events, so files are polled every "+eventlessPoll.String()+
		"; raise its sysctls fs.inotify.max_user_instances and max_user_watches", "error", err)
}

func (c *changes) close() {
	c.poll.Stop()
	c.watcher.close()
}
