package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/wait"
)

// podUIDEnv is the UID of the pod that this runs in. The start-up probe of the driver container writes the same.
const podUIDEnv = "POD_UID"

// errNoPod is the failure of exec --driver-container outside such a pod.
var errNoPod = errors.New(
	"the environment variable " + podUIDEnv + " is not set; set it from the field metadata.uid of the pod")

// awaitDriverContainer blocks until the driver container of this pod is up, and its sources are visible in its root:
// other containers of the pod build kernel modules with them. No marker shows this: the driver's marker is written once
// these modules are loaded.
func awaitDriverContainer(sources string) work {
	return func(ctx context.Context, markers marker.Dir, log *slog.Logger) error {
		pod := os.Getenv(podUIDEnv)
		if pod == "" {
			return errNoPod
		}
		waiter := wait.Waiter{Dir: markers.Path, What: "the driver container of this pod", Log: log}
		return waiter.Until(ctx, func() error {
			container, err := markers.Container()
			switch {
			case err != nil:
				return err
			case !container.Ready:
				return fmt.Errorf("its start-up probe has not passed (%s is missing)", labels.DriverContainerReady)
			case container.Instance != pod:
				return fmt.Errorf("%s is of another pod", labels.DriverContainerReady)
			}
			if _, err := os.Stat(sources); err != nil {
				return fmt.Errorf("its root file system is not shared yet: %w", err)
			}
			return nil
		})
	}
}
