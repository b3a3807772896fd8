package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

// Exit codes.
const (
	exitFailure = 1
	exitUsage   = 2
)

// failure is the error of a command that was called rightly.
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
		return exitFailure
	}
	fmt.Fprintf(os.Stderr, "gpu-node: %v (see gpu-node --help)\n", err)
	return exitUsage
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "gpu-node",
		Short: "Waits for, proves and starts the parts of the GPU stack on one node",
		Long: `gpu-node waits for, proves and starts the parts of the GPU stack on one node.

Exit codes: 0 success, 1 failure with one sentence that says why, 2 wrong usage.`,
		// main prints errors, and a reason is not helped by the list of flags.
		SilenceErrors:      true,
		SilenceUsage:       true,
		DisableSuggestions: true, // The error is one line.
		CompletionOptions:  cobra.CompletionOptions{DisableDefaultCmd: true},
		RunE:               requireSubcommand("wait, exec, validate, discover, export, probe, restarted, copy or hold"),
	}
	root.AddCommand(waitCommand(), execCommand(), validateCommand(), discoverCommand(), exportCommand(),
		probeCommand(), restartedCommand(), copyCommand(), holdCommand())
	return root
}

// requireSubcommand makes a group of commands fail where cobra would print help and succeed: a
// container with a misspelt command must not look as if it had done its work.
func requireSubcommand(names string) func(*cobra.Command, []string) error {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return fmt.Errorf("no command given; use %s", names)
		}
		return fmt.Errorf("there is no command %q; use %s", args[0], names)
	}
}
