package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/atomicfile"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/termination"
)

// ownBinary is this program, whatever the name under which it was started.
const ownBinary = "/proc/self/exe"

func copyCommand() *cobra.Command {
	var terminationLog string
	command := &cobra.Command{
		Use:   "copy DIR",
		Short: "Copy this program to DIR/gpu-node, for containers whose images do not have it",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return fail(copySelf(args[0]), terminationLog)
		},
	}
	registerTerminationLog(command.Flags(), &terminationLog)
	return command
}

// registerCopy registers the flag of labels.CopyToFlag.
func registerCopy(flags *pflag.FlagSet, dir *string) {
	flags.StringVar(dir, strings.Trim(labels.CopyToFlag, "-="), "",
		"directory to copy this program to first, as gpu-node copy does")
}

// copyTo copies this program to a directory, unless that is empty.
func copyTo(dir string) error {
	if dir == "" {
		return nil
	}
	return copySelf(dir)
}

func copySelf(dir string) error {
	self, err := os.Open(ownBinary)
	if err != nil {
		return fmt.Errorf("open this program; is /proc mounted? %w", err)
	}
	defer func() { _ = self.Close() }()
	return atomicfile.Write(filepath.Join(dir, filepath.Base(labels.HelperBinary)), 0o755, self)
}

func holdCommand() *cobra.Command {
	var message string
	command := &cobra.Command{
		Use:   labels.HoldCommand,
		Short: "Do nothing until SIGTERM: the main container of a pod whose init containers do the work",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			ctx, stop := termination.Context()
			defer stop()
			newLog().Info(message)
			<-ctx.Done()
			return nil
		},
	}
	command.Flags().StringVar(&message, "message", "all validations are successful", "what to log first")
	return command
}
