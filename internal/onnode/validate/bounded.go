package validate

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// killGrace is how long a check may take to end once it is cancelled.
const killGrace = 2 * time.Second

var errHangs = errors.New(
	"the check hangs and cannot be killed; see the kernel log for Xid errors of the GPU and reboot the node")

// Bounded runs a check, cancels it after timeout, and returns its error. A process that hangs in the kernel cannot be
// killed, as nvidia-smi on a broken GPU. Then Bounded calls hung with the error for that, and returns the check's own
// error if it ends after all, or the error for the hang when ctx ends.
func Bounded(
	ctx context.Context, timeout time.Duration, check func(ctx context.Context) error, hung func(error),
) error {
	bounded, cancel := context.WithTimeoutCause(ctx, timeout,
		fmt.Errorf("it does not end within %s; see the kernel log for Xid errors of the GPU", timeout))
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- check(bounded) }()
	select {
	case err := <-done:
		return err
	case <-bounded.Done():
	}
	grace := time.NewTimer(killGrace)
	defer grace.Stop()
	select {
	case err := <-done:
		return err
	case <-grace.C:
	}
	if ctx.Err() == nil {
		hung(errHangs)
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return errHangs
	}
}
