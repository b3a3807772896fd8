package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/await"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/runenv"
)

func waitCommand() *cobra.Command {
	var (
		node   node
		names  []string
		copies string
		// injected is set if GPUs are injected into the containers after this one.
		injected bool
		sysRoot  string
	)
	command := &cobra.Command{
		Use:   "wait --for=driver,toolkit",
		Short: "Block until parts of the stack work on this node",
		Long: `Block until the marker of each named part exists and is neither of another boot nor of
another driver instance, and the kernel module that the driver was validated with is loaded.
A marker of NVIDIA's validator, which has neither, must be newer than the boot and than the driver container.

With --injected, also wait until the container runtime has restarted with the toolkit's configuration, if the
driver's marker has RUNTIME_FOLLOWS=true.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			wanted, err := markersNamed(names)
			if err != nil {
				return err
			}
			return node.run(func(ctx context.Context, markers marker.Dir, log *slog.Logger) error {
				if err := copyTo(copies); err != nil {
					return err
				}
				markers.SysRoot = sysRoot
				return await.Markers(ctx, markers, log, injected, wanted...)
			})
		},
	}
	node.register(command.Flags())
	registerCopy(command.Flags(), &copies)
	command.Flags().StringVar(&sysRoot, "sys-root", "/sys", "sysfs, as mounted here")
	command.Flags().StringSliceVar(&names, "for", nil, "parts to wait for: "+knownMarkers())
	command.Flags().BoolVar(&injected, strings.Trim(labels.InjectedFlag, "-"), false,
		"GPUs are injected into the containers after this one")
	mustBeGiven(command, "for")
	return command
}

// execution has the flags of exec.
type execution struct {
	node      node
	marker    string
	fromFile  []string
	fromKmods []string
	sysRoot   string
	// ownDriver waits for the driver container of the same pod instead of a marker.
	ownDriver bool
	// sources is the directory of the driver's sources, in its root.
	sources string
	// startedFile gets the time at which the command is started; empty for none.
	startedFile string
}

func execCommand() *cobra.Command {
	var execution execution
	command := &cobra.Command{
		Use:   "exec [flags] -- COMMAND [ARG...]",
		Short: "Wait for a part of the stack, then execute a command with its environment",
		Long: `Wait as gpu-node wait does, add the assignments of the marker to the environment, and execute the
command in place of this program. The assignments override the container's own environment; the variables
of --env-from-marker and --env-if-module do not.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, argv []string) error { return execution.run(argv) },
	}
	flags := command.Flags()
	// Flags after the command belong to the command, with or without "--".
	flags.SetInterspersed(false)
	execution.node.register(flags)
	flags.StringVar(&execution.marker, "marker", string(labels.MarkerDriver), "part to wait for: "+knownMarkers())
	flags.StringArrayVar(&execution.fromFile, "env-from-marker", nil,
		"VARIABLE=KEY: set the variable to the marker's value of KEY, unless the container sets it; repeatable")
	flags.StringArrayVar(&execution.fromKmods, "env-if-module", nil,
		"VARIABLE=MODULE: set the variable to true if the kernel module is loaded, unless the container sets it; repeatable")
	flags.StringVar(&execution.sysRoot, "sys-root", "/sys", "sysfs, as mounted here")
	flags.BoolVar(&execution.ownDriver, "driver-container", false,
		"wait for the driver container of this pod, whose UID is in the environment variable "+podUIDEnv+", not for a marker")
	flags.StringVar(&execution.sources, "driver-sources", labels.DriverSources,
		"directory in the driver's root that --driver-container also waits for")
	flags.StringVar(&execution.startedFile, startedFileFlag, "",
		"file to which the start of the command is written, for gpu-node "+labels.RestartedCommand+
			"; the command cannot signal SIGHUP to its own process group")
	command.MarkFlagsMutuallyExclusive("marker", "driver-container")
	return command
}

func (e *execution) run(argv []string) error {
	wanted, err := marker.Named(e.marker)
	if err != nil {
		return err
	}
	fromFile, err := runenv.ParseRules(e.fromFile)
	if err != nil {
		return fmt.Errorf("--env-from-marker: %w", err)
	}
	fromKmods, err := runenv.ParseRules(e.fromKmods)
	if err != nil {
		return fmt.Errorf("--env-if-module: %w", err)
	}
	var found []marker.Assignment
	var waits work = func(ctx context.Context, markers marker.Dir, log *slog.Logger) (err error) {
		markers.SysRoot = e.sysRoot
		found, err = await.Assignments(ctx, markers, log, wanted)
		return err
	}
	if e.ownDriver {
		waits = awaitDriverContainer(e.sources)
	}
	start := runenv.Start{
		Argv: argv, FromMarker: fromFile, FromModules: fromKmods, SysRoot: e.sysRoot, StartedFile: e.startedFile,
	}
	return e.node.runThen(waits, func(ctx context.Context) error { return start.Run(ctx, found) })
}

// knownMarkers lists the parts that can be waited for.
func knownMarkers() string {
	names := make([]string, 0, len(marker.Known))
	for _, m := range marker.Known {
		names = append(names, string(m))
	}
	return strings.Join(names, ", ")
}

func markersNamed(names []string) ([]labels.Marker, error) {
	if len(names) == 0 {
		return nil, errors.New("--for is empty; name the parts to wait for: " + knownMarkers())
	}
	markers := make([]labels.Marker, 0, len(names))
	for _, name := range names {
		m, err := marker.Named(name)
		if err != nil {
			return nil, err
		}
		markers = append(markers, m)
	}
	return markers, nil
}

// mustBeGiven marks a flag as required. It panics if the command does not have the flag.
func mustBeGiven(command *cobra.Command, flag string) {
	if err := command.MarkFlagRequired(flag); err != nil {
		panic(err)
	}
}
