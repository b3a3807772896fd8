package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/runenv"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/wait"
)

func waitCommand() *cobra.Command {
	var (
		node  node
		names []string
	)
	command := &cobra.Command{
		Use:   "wait --for=driver,toolkit",
		Short: "Block until parts of the stack work on this node",
		Long: `Block until the marker of each named part exists and is neither of another boot nor of
another instance of the driver container.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			wanted, err := markersNamed(names)
			if err != nil {
				return err
			}
			return node.run(func(ctx context.Context, markers marker.Dir, log *slog.Logger) error {
				return waitFor(ctx, markers, log, wanted...)
			})
		},
	}
	node.register(command.Flags())
	command.Flags().StringSliceVar(&names, "for", nil, "parts to wait for: driver, toolkit, plugin")
	mustBeGiven(command, "for")
	return command
}

func execCommand() *cobra.Command {
	var (
		node node
		name string
	)
	command := &cobra.Command{
		Use:   "exec [flags] -- COMMAND [ARG...]",
		Short: "Wait for a part of the stack, then become a command with its environment",
		Long: `Wait as gpu-node wait does, add the assignments of the marker to the environment, and become
the command.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, argv []string) error {
			wanted, err := marker.Named(name)
			if err != nil {
				return err
			}
			return node.run(func(ctx context.Context, markers marker.Dir, log *slog.Logger) error {
				var found []marker.Assignment
				waiter := wait.Waiter{Dir: markers.Path, What: name, Log: log}
				// What was checked is what is used: a second read could find another marker.
				err := waiter.Until(ctx, func() (err error) {
					found, err = markers.Read(wanted)
					return err
				})
				if err != nil {
					return err
				}
				return runenv.Replace(argv, runenv.Environ(os.Environ(), found))
			})
		},
	}
	// The command's own flags are its own, with or without "--".
	command.Flags().SetInterspersed(false)
	node.register(command.Flags())
	command.Flags().StringVar(&name, "marker", string(labels.MarkerDriver), "part to wait for: driver, toolkit, plugin")
	return command
}

func markersNamed(names []string) ([]labels.Marker, error) {
	if len(names) == 0 {
		return nil, errors.New("--for is empty; name the parts to wait for: driver, toolkit, plugin")
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

// waitFor blocks until all wanted markers can be trusted. The reason names each that cannot.
func waitFor(ctx context.Context, markers marker.Dir, log *slog.Logger, wanted ...labels.Marker) error {
	names := make([]string, 0, len(wanted))
	for _, m := range wanted {
		names = append(names, string(m))
	}
	waiter := wait.Waiter{Dir: markers.Path, What: strings.Join(names, ", "), Log: log}
	return waiter.Until(ctx, func() error {
		var reasons []string
		for _, m := range wanted {
			if _, err := markers.Read(m); err != nil {
				reasons = append(reasons, err.Error())
			}
		}
		if len(reasons) > 0 {
			return errors.New(strings.Join(reasons, "; "))
		}
		return nil
	})
}

// mustBeGiven marks a flag as required. It panics on a flag that the command has not.
func mustBeGiven(command *cobra.Command, flag string) {
	if err := command.MarkFlagRequired(flag); err != nil {
		panic(err)
	}
}
