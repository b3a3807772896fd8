package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/restart"
)

func restartedCommand() *cobra.Command {
	var probe restartProbe
	command := &cobra.Command{
		Use:   labels.RestartedCommand + " --socket=FILE --started-file=FILE",
		Short: "Probe whether the container runtime has restarted since the toolkit of this container was started",
		Long: `Probe whether the container runtime has restarted since gpu-node exec --started-file started the toolkit:
only then can it create pods with the RuntimeClass. The pod needs hostPID.

A runtime that has not restarted --patience after the toolkit's start is assumed to need no restart. Then write the
marker runtime, for which containers wait that get GPUs injected.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := probe.run(command.Context()); err != nil {
				return failure{err}
			}
			return nil
		},
	}
	flags := command.Flags()
	probe.node.registerMarkers(flags)
	flags.StringVar(&probe.socket, "socket", "", "socket of the container runtime, as mounted here")
	flags.StringVar(&probe.startedFile, startedFileFlag, "", "file of gpu-node exec --"+startedFileFlag)
	flags.StringVar(&probe.procRoot, "proc-root", "/proc", "procfs with the processes of the host, as mounted here")
	flags.DurationVar(&probe.within, "within", 0, "how long to wait before failing")
	flags.DurationVar(&probe.patience, "patience", time.Minute,
		"how long after the toolkit's start to wait for the runtime")
	mustBeGiven(command, "socket")
	mustBeGiven(command, startedFileFlag)
	return command
}

// startedFileFlag names the file in which exec leaves the start of the command for the probe.
const startedFileFlag = "started-file"

// restartProbe is the start-up probe of the toolkit's container.
type restartProbe struct {
	node                          node
	socket, startedFile, procRoot string
	within, patience              time.Duration
}

func (p restartProbe) run(ctx context.Context) error {
	if err := pollUntil(ctx, p.within, p.check); err != nil {
		return err
	}
	markers, err := p.node.markers()
	if err != nil {
		return err
	}
	if _, err := markers.Read(labels.MarkerRuntime); err == nil {
		// Written by an attempt whose result the kubelet has lost: its own runtime has restarted.
		return nil
	}
	return noteRuntime(markers)
}

// noteRuntime writes the marker for the validated driver. Once the probe has passed it does not run again, so the
// marker must be of a driver that was the same all the time.
func noteRuntime(markers marker.Dir) error {
	instance, err := markers.DriverInstance()
	if err != nil {
		return err
	}
	if _, err := markers.Read(labels.MarkerDriver); err != nil {
		return err
	}
	if err := markers.Write(labels.MarkerRuntime, nil, instance); err != nil {
		return err
	}
	_, err = markers.Read(labels.MarkerRuntime)
	return err
}

func (p restartProbe) check() (time.Duration, error) {
	started, noted, err := restart.Noted(p.startedFile)
	if err != nil {
		return probePause, err
	}
	if !noted {
		return probePause, errors.New("the toolkit has not been started yet")
	}
	now, err := restart.Now()
	if err != nil || now-started > p.patience {
		return probePause, err
	}
	return probePause, restart.Since(p.socket, p.procRoot, started)
}
