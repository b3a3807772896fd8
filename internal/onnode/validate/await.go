package validate

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/wait"
)

// awaiter is the error of a check that is told when another attempt is worth while.
type awaiter interface {
	error
	// await blocks until then, or until ctx ends. It returns false where it cannot be told: then the usual
	// pause follows, of which longest is the longest.
	await(ctx context.Context, longest time.Duration) bool
}

// onItsWay is the error of a check whose component is not to blame yet: it needs what another one,
// which says itself how it fares, is still to bring. That may take long, as building a driver does.
type onItsWay struct{ error }

func (o onItsWay) Unwrap() error { return o.error }

func isOnItsWay(reason error) bool {
	var missing onItsWay
	return errors.As(reason, &missing)
}

// awaitFile is the error of a check that cannot succeed before a file changes.
type awaitFile struct {
	path   string
	reason string
	// until returns nil once the next attempt is worth its while.
	until func() error
}

func (a *awaitFile) Error() string { return a.reason }

// awaitExistence returns the error of a check that cannot succeed before another component has made a
// file at path.
func awaitExistence(path, reason string) error {
	return onItsWay{&awaitFile{path: path, reason: reason, until: func() error {
		_, err := os.Stat(path)
		return err
	}}}
}

func (a *awaitFile) await(ctx context.Context, longest time.Duration) bool {
	// Bounded, since there may be another way to succeed by then: a driver on the host.
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	waiter := wait.Waiter{Dir: filepath.Dir(a.path), What: a.path, Log: slog.New(slog.DiscardHandler)}
	// Whether the file came or the time is over, the next attempt finds out.
	_ = waiter.Until(ctx, a.until)
	return true
}
