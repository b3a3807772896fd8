package await

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/wait"
)

// DriverContainer blocks until the driver container of the pod with this UID is up and its sources are visible in its
// root, or ctx ends: other containers of the pod build kernel modules with them. No marker shows this: the driver's
// marker is written once these modules are loaded.
func DriverContainer(ctx context.Context, markers marker.Dir, log *slog.Logger, pod, sources string) error {
	waiter := wait.Waiter{Dir: markers.Path, What: "the driver container of this pod", Log: log}
	return waiter.Until(ctx, func() error {
		container, err := markers.Container()
		switch {
		case err != nil:
			return err
		case !container.Ready:
			return fmt.Errorf("its start-up probe has not passed (%s is missing)", labels.DriverContainerReady)
		case container.DriverInstance != pod:
			return fmt.Errorf("%s is of another pod", labels.DriverContainerReady)
		}
		if _, err := os.Stat(sources); err != nil {
			return fmt.Errorf("its root file system is not shared yet: %w", err)
		}
		return nil
	})
}
