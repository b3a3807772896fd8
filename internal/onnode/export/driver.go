package export

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/validate"
)

// killGrace is how long a check may take to end once it is cancelled.
const killGrace = 2 * time.Second

// driver checks the driver again and again, and keeps the last result.
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
	for {
		d.attempt(ctx)
		select {
		case <-next.C:
		case <-ctx.Done():
			return
		}
	}
}

// attempt checks once. A process that hangs in the kernel cannot be killed, as nvidia-smi on a broken
// GPU: then it is a failure, and attempt returns only when that process has ended.
func (d *driver) attempt(ctx context.Context) {
	bounded, cancel := context.WithTimeoutCause(ctx, d.timeout,
		fmt.Errorf("it does not end within %s; see the kernel log for Xid errors of the GPU", d.timeout))
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := d.check(bounded)
		done <- err
	}()
	hangs := time.NewTimer(d.timeout + killGrace)
	defer hangs.Stop()
	select {
	case err := <-done:
		d.note(ctx, err)
		return
	case <-hangs.C:
		d.note(ctx, errors.New("the check hangs and cannot be killed; see the kernel log for Xid errors of the GPU and reboot the node"))
	case <-ctx.Done():
		return
	}
	select {
	case err := <-done:
		d.note(ctx, err)
	case <-ctx.Done():
	}
}

// note keeps the result, unless it is only that of the end of the program.
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

// result returns whether the driver works, whether that is known, and when it worked last; the zero
// time is never.
func (d *driver) result() (works, known bool, lastSuccess time.Time) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return d.works, d.checked, d.lastSuccess
}

// reasons logs why something fails when the reason changes, and when it is gone.
type reasons struct {
	log   *slog.Logger
	mutex sync.Mutex
	last  map[string]string
}

// note takes the present reason for a problem; nil is none.
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
