package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/version"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/validate"
)

// Exit codes.
const (
	exitFailure = 1
	exitUsage   = 2
)

// failure is the error of a command that was used correctly.
type failure struct{ error }

func (f failure) Unwrap() error { return f.error }

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	root := rootCommand()
	root.SetArgs(args)
	err := root.Execute()
	if err == nil {
		return 0
	}
	if errors.As(err, &failure{}) {
		newLog().Error(err.Error())
		return exitCode(err)
	}
	fmt.Fprintf(os.Stderr, "gpu-node: %v (see gpu-node --help)\n", err)
	return exitUsage
}

// exitCode returns the exit code of a failure. That of lost GPUs states their number.
func exitCode(err error) int {
	if loss := (*validate.Loss)(nil); errors.As(err, &loss) && loss.GPUs > 0 {
		return labels.ExitGPUsLost + min(loss.GPUs, labels.MaxExitGPUsLost)
	}
	return exitFailure
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "gpu-node",
		Short: "Waits for, validates, starts and removes the parts of the GPU stack on one node",
		Long: `gpu-node waits for, validates, starts and removes the parts of the GPU stack on one node.

Exit codes: 0 success, 1 failure with one sentence why, 2 wrong usage. recheck also has 64 + the number of lost GPUs.`,
		Version: version.Version,
		// main prints errors; the list of flags would only hide them.
		SilenceErrors:      true,
		SilenceUsage:       true,
		DisableSuggestions: true, // The error is one line.
		CompletionOptions:  cobra.CompletionOptions{DisableDefaultCmd: true},
		RunE: requireSubcommand(
			"wait, exec, validate, discover, configure, export, health, probe, restarted, recheck, copy, hold or cleanup"),
	}
	root.AddCommand(waitCommand(), execCommand(), validateCommand(), discoverCommand(), configureCommand(),
		exportCommand(), healthCommand(), probeCommand(), restartedCommand(), recheckCommand(), copyCommand(),
		holdCommand(), cleanupCommand())
	return root
}

// requireSubcommand makes a group of commands fail where cobra would print help and succeed: a container with a
// misspelt command must not look successful.
func requireSubcommand(names string) func(*cobra.Command, []string) error {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return fmt.Errorf("no command given; use %s", names)
		}
		return fmt.Errorf("unknown command %q; use %s", args[0], names)
	}
}
