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

// awaiter is the error of a check that can detect when another attempt makes sense.
type awaiter interface {
	error
	// await blocks until then, or until ctx ends. It returns false if it cannot detect it: then the usual
	// pause follows, at most longest.
	await(ctx context.Context, longest time.Duration) bool
}

// pendingDependency is the error of a check whose component is not at fault yet: another component, which reports
// its own state, has to provide something first. That may take long, as building a driver does.
type pendingDependency struct{ error }

func (p pendingDependency) Unwrap() error { return p.error }

func isPending(reason error) bool {
	var pending pendingDependency
	return errors.As(reason, &pending)
}

// awaitFile is the error of a check that cannot succeed before a file changes.
type awaitFile struct {
	path   string
	reason string
	// until returns nil once another attempt makes sense.
	until func() error
}

func (a *awaitFile) Error() string { return a.reason }

// awaitExistence returns the error of a check that cannot succeed before another component has created the file at
// path.
func awaitExistence(path, reason string) error {
	return pendingDependency{&awaitFile{path: path, reason: reason, until: func() error {
		_, err := os.Stat(path)
		return err
	}}}
}

func (a *awaitFile) await(ctx context.Context, longest time.Duration) bool {
	// Limited, since the check may succeed in another way by then: with a driver on the host.
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	waiter := wait.Waiter{Dir: filepath.Dir(a.path), What: a.path, Log: slog.New(slog.DiscardHandler)}
	// The result does not matter: the next attempt looks at the file.
	_ = waiter.Until(ctx, a.until)
	return true
}
