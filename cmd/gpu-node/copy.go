package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/atomicfile"
)

// ownBinary is this program, whatever the name under which it was started.
const ownBinary = "/proc/self/exe"

func copyCommand() *cobra.Command {
	var terminationLog string
	command := &cobra.Command{
		Use:   "copy DIR",
		Short: "Copy this program to DIR/gpu-node, for containers whose images lack it",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return fail(copySelf(args[0]), terminationLog)
		},
	}
	registerTerminationLog(command.Flags(), &terminationLog)
	return command
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
	return &cobra.Command{
		Use:   "hold",
		Short: "Do nothing until SIGTERM: the main container of a pod whose init containers do the work",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			ctx, stop := untilTerminated()
			defer stop()
			newLog().Info("all validations of this node have succeeded")
			<-ctx.Done()
			return nil
		},
	}
}
