package main

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/await"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
)

// podUIDEnv is the UID of the pod that this runs in. The start-up probe of the driver container writes the same.
const podUIDEnv = "POD_UID"

var errNoPod = errors.New("the environment variable " + podUIDEnv + " is not set; " +
	"set it from the field metadata.uid of the pod")

// awaitDriverContainer waits for the driver container of this pod.
func awaitDriverContainer(sources string) work {
	return func(ctx context.Context, markers marker.Dir, log *slog.Logger) error {
		pod := os.Getenv(podUIDEnv)
		if pod == "" {
			return errNoPod
		}
		return await.DriverContainer(ctx, markers, log, pod, sources)
	}
}
