package export

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/validate"
)

// driver checks the driver periodically, and keeps the last result.
type driver struct {
	check          validate.Check
	every, timeout time.Duration
	log            *reasons

	mutex       sync.Mutex
	checked     bool
	works       bool
	lastSuccess time.Time
}

// run checks until ctx ends.
func (d *driver) run(ctx context.Context) {
	next := time.NewTicker(d.every)
	defer next.Stop()
	for ctx.Err() == nil {
		d.attempt(ctx)
		select {
		case <-next.C:
		case <-ctx.Done():
		}
	}
}

// attempt checks once. A check that hangs is a failure; attempt returns only when it has ended.
func (d *driver) attempt(ctx context.Context) {
	note := func(err error) { d.note(ctx, err) }
	note(validate.Bounded(ctx, d.timeout, func(ctx context.Context) error {
		_, err := d.check(ctx)
		return err
	}, note))
}

// note keeps the result, unless it is caused by the end of the program.
func (d *driver) note(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	d.log.note("the driver does not work", err)
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.checked, d.works = true, err == nil
	if d.works {
		d.lastSuccess = time.Now()
	}
}

// result returns whether the driver works, whether that is known, and when it worked last, the zero time for never.
func (d *driver) result() (works, known bool, lastSuccess time.Time) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return d.works, d.checked, d.lastSuccess
}

// reasons logs why something fails when the reason changes, and when it works again.
type reasons struct {
	log   *slog.Logger
	mutex sync.Mutex
	last  map[string]string
}

// note records the current reason for a problem; nil means none.
func (r *reasons) note(problem string, err error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	now := ""
	if err != nil {
		now = err.Error()
	}
	before := r.last[problem]
	r.last[problem] = now
	switch {
	case now == before:
	case now == "":
		r.log.Info("no longer: " + problem)
	default:
		r.log.Warn(problem, "because", now)
	}
}
