package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/probe"
)

func restartedCommand() *cobra.Command {
	var restarted restartProbe
	command := &cobra.Command{
		Use:   labels.RestartedCommand + " --socket=FILE --started-file=FILE",
		Short: "Probe whether the container runtime has restarted since the toolkit of this container was started",
		Long: `Probe whether the container runtime has restarted since gpu-node exec --started-file started the toolkit:
only then can it create pods with the RuntimeClass. The pod needs hostPID.

A runtime that has not restarted --patience after the toolkit's start is assumed to need no restart. Then write the
marker runtime, for which containers wait that get GPUs injected.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := restarted.run(command.Context()); err != nil {
				return failure{err}
			}
			return nil
		},
	}
	flags := command.Flags()
	restarted.node.registerMarkers(flags)
	flags.StringVar(&restarted.Socket, "socket", "", "socket of the container runtime, as mounted here")
	flags.StringVar(&restarted.StartedFile, startedFileFlag, "", "file of gpu-node exec --"+startedFileFlag)
	flags.StringVar(&restarted.ProcRoot, "proc-root", "/proc", "procfs with the processes of the host, as mounted here")
	flags.DurationVar(&restarted.Within, "within", 0, "how long to wait before failing")
	flags.DurationVar(&restarted.Patience, "patience", time.Minute,
		"how long after the toolkit's start to wait for the runtime")
	mustBeGiven(command, "socket")
	mustBeGiven(command, startedFileFlag)
	return command
}

// startedFileFlag names the file in which exec leaves the start of the command for the probe.
const startedFileFlag = "started-file"

// restartProbe has the flags of gpu-node restarted.
type restartProbe struct {
	probe.Toolkit
	node node
}

func (p restartProbe) run(ctx context.Context) error {
	if err := p.Wait(ctx); err != nil {
		return err
	}
	markers, err := p.node.markers()
	if err != nil {
		return err
	}
	return probe.NoteRuntime(markers)
}
