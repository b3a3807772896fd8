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
			w.Log.Warn("file events were lost, so look again", "error", err)
		case <-watched.poll.C:
		case <-ctx.Done():
			return
		}
	}
}

// changes are the events of a directory, and the safety net for those that the kernel does not tell of.
type changes struct {
	*watcher
	waiter *Waiter
	poll   *time.Ticker
}

// open returns the changes of the directory; to be closed.
func (w *Waiter) open() *changes {
	c := &changes{waiter: w, poll: time.NewTicker(w.poll)}
	var err error
	if c.watcher, err = w.watch(); err != nil {
		c.loseEvents(err)
	}
	return c
}

// follow watches the directory as it is now; it comes before each look at it.
func (c *changes) follow() {
	if err := c.watcher.follow(c.waiter.Dir); err != nil {
		c.watcher.close()
		c.loseEvents(err)
	}
}

// loseEvents makes the safety net do the work: with no inotify a hand-over takes seconds, which
// is worth a line but never a failure.
func (c *changes) loseEvents(err error) {
	c.watcher = &watcher{}
	c.poll.Reset(min(c.waiter.poll, eventlessPoll))
	c.waiter.Log.Warn("the node grants no file events, so files are looked at every "+eventlessPoll.String()+
		"; raise its sysctls fs.inotify.max_user_instances and max_user_watches", "error", err)
}

func (c *changes) close() {
	c.poll.Stop()
	c.watcher.close()
}
