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
		Short: "Probe whether the container runtime has restarted since the toolkit of this container did",
		Long: `Probe whether the container runtime has restarted since gpu-node exec --started-file turned into the
toolkit: only then does it make pods with the RuntimeClass. The pod must share the processes of the host.

A runtime that has not restarted --patience after the toolkit is taken to need no restart. Then write the marker
runtime, for which those wait into whose containers GPUs are injected.`,
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
		"how long after the toolkit's start the runtime is waited for")
	mustBeGiven(command, "socket")
	mustBeGiven(command, startedFileFlag)
	return command
}

// startedFileFlag names the file by which exec tells the probe since when the command runs.
const startedFileFlag = "started-file"

// restartProbe is the start-up probe of the toolkit's container.
type restartProbe struct {
	node                          node
	socket, startedFile, procRoot string
	within, patience              time.Duration
}

func (p restartProbe) run(ctx context.Context) error {
	if err := lookUntil(ctx, p.within, p.look); err != nil {
		return err
	}
	markers, err := p.node.markers()
	if err != nil {
		return err
	}
	if _, err := markers.Read(labels.MarkerRuntime); err == nil {
		// By an attempt whose result the kubelet has lost: the runtime that ran it has restarted.
		return nil
	}
	return noteRuntime(markers)
}

// noteRuntime writes the marker for the driver that is proven. Once the probe has passed it does not run again, so that the
// marker must be of a driver that was there the whole time.
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

func (p restartProbe) look() (time.Duration, error) {
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
