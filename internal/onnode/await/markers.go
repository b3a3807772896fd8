package await

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/wait"
)

// Markers blocks until all wanted markers can be trusted or ctx ends. The error lists each that cannot. With injected,
// it also waits until the container runtime has restarted, if the driver's marker has marker.RuntimeFollows.
func Markers(ctx context.Context, markers marker.Dir, log *slog.Logger, injected bool, wanted ...labels.Marker) error {
	names := make([]string, 0, len(wanted))
	for _, m := range wanted {
		names = append(names, string(m))
	}
	waiter := wait.Waiter{Dir: markers.Path, What: strings.Join(names, ", "), Log: log}
	return waiter.Until(ctx, func() error {
		var reasons []string
		for _, m := range wanted {
			found, err := markers.Read(m)
			if err == nil && injected && slices.Contains(found, marker.RuntimeFollows) {
				_, err = markers.Read(labels.MarkerRuntime)
			}
			if err != nil {
				reasons = append(reasons, err.Error())
			}
		}
		if len(reasons) > 0 {
			return errors.New(strings.Join(reasons, "; "))
		}
		return nil
	})
}

// Assignments blocks until the marker can be trusted or ctx ends, and returns its assignments: those that were checked,
// since a second read could find another marker.
func Assignments(
	ctx context.Context, markers marker.Dir, log *slog.Logger, wanted labels.Marker,
) (found []marker.Assignment, err error) {
	waiter := wait.Waiter{Dir: markers.Path, What: string(wanted), Log: log}
	err = waiter.Until(ctx, func() (err error) {
		found, err = markers.Read(wanted)
		return err
	})
	return found, err
}
