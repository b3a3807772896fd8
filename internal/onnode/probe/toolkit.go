package probe

import (
	"context"
	"errors"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/restart"
)

// Toolkit is the start-up probe of the toolkit's container.
type Toolkit struct {
	// Socket is that of the container runtime, StartedFile the file with the toolkit's start (see restart.Note), ProcRoot
	// procfs with the processes of the host.
	Socket, StartedFile, ProcRoot string
	// Within is how long to wait before failing, Patience how long after the toolkit's start the runtime is expected to
	// restart.
	Within, Patience time.Duration
}

// Wait waits until the container runtime has restarted after the toolkit's start, or needs no restart.
func (p Toolkit) Wait(ctx context.Context) error { return pollUntil(ctx, p.Within, p.check) }

func (p Toolkit) check() (time.Duration, error) {
	started, noted, err := restart.Noted(p.StartedFile)
	if err != nil {
		return filePause, err
	}
	if !noted {
		return filePause, errors.New("the toolkit has not been started yet")
	}
	now, err := restart.Now()
	if err != nil || now-started > p.Patience {
		return filePause, err
	}
	return filePause, restart.Since(p.Socket, p.ProcRoot, started)
}

// NoteRuntime writes the marker of the container runtime for the validated driver, unless it can be trusted already.
// Once the probe has passed it does not run again, so the marker must be of a driver that was the same all the time.
func NoteRuntime(markers marker.Dir) error {
	if _, err := markers.Read(labels.MarkerRuntime); err == nil {
		// Written by an attempt whose result the kubelet has lost: its own runtime has restarted.
		return nil
	}
	driverInstance, err := markers.DriverInstance()
	if err != nil {
		return err
	}
	if _, err := markers.Read(labels.MarkerDriver); err != nil {
		return err
	}
	if err := markers.Write(labels.MarkerRuntime, nil, driverInstance); err != nil {
		return err
	}
	_, err = markers.Read(labels.MarkerRuntime)
	return err
}
