package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/clusterpolicy/gpu-operator/internal/names/version"
)

// Exit codes.
const (
	exitFailure = 1
	exitUsage   = 2
	// exitDiffers is that of diff, if the operator would change anything.
	exitDiffers = 1
	// exitBlocked is that of migrate with --check, if something blocks the migration.
	exitBlocked = 2
	// exitUpgrades is that of plan with --detailed-exitcode, if drivers would be upgraded.
	exitUpgrades = 3
	// exitNotReady is that of status with --detailed-exitcode, if the policy is not ready.
	exitNotReady = 3
	// exitNoFreeGPU is that of test, if the node has no free GPU.
	exitNoFreeGPU = 3
	// exitInterrupted is that of a command which Ctrl-C has ended, as of a shell.
	exitInterrupted = 130
)

// errUpgradesHappen makes the plugin exit with exitUpgrades. It is not printed.
var errUpgradesHappen = errors.New("drivers would be upgraded")

// failure is the error of a command whose usage was correct.
type failure struct{ error }

func (f failure) Unwrap() error { return f.error }

// coded is an error with an exit code of its own.
type coded struct {
	error
	code int
}

func (c coded) Unwrap() error { return c.error }

// silentErrors make the plugin exit with their code. They are not printed.
var silentErrors = []coded{
	{errUpgradesHappen, exitUpgrades}, {errDiffers, exitDiffers}, {errNotReady, exitNotReady}, {errBlocked, exitBlocked},
}

// gcPercent is how much the heap may grow before a collection, in percent of the live heap, unless the environment has
// GOGC; Go's default is 100. What a command keeps of large lists is a fraction of what it decodes.
const gcPercent = 30

func main() {
	silenceClient()
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// silenceClient discards what client-go notes about calls that fail: it is in the errors of the commands. Errors go to
// standard error below a threshold, whatever the output is.
func silenceClient() {
	flags := flag.NewFlagSet("", flag.PanicOnError)
	klog.InitFlags(flags)
	_ = flags.Parse([]string{"-logtostderr=false", "-stderrthreshold=FATAL"})
	klog.SetOutput(io.Discard)
}

func run(args []string, in io.Reader, out, errOut io.Writer) int {
	root := rootCommand()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	addCompletion(root)
	command, err := root.ExecuteC()
	if err == nil {
		return 0
	}
	for _, silent := range silentErrors {
		if errors.Is(err, silent.error) {
			return silent.code
		}
	}
	fmt.Fprintln(errOut, "kubectl gpu:", err)
	fmt.Fprint(errOut, bindingText(command, err))
	if !errors.As(err, &failure{}) {
		fmt.Fprintf(errOut, "See '%s --help' for usage.\n", command.CommandPath())
		return exitUsage
	}
	if own := (coded{}); errors.As(err, &own) {
		return own.code
	}
	return exitFailure
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "kubectl-gpu",
		Short: "Show the state of GPUs and what the operator would do, clean up, and migrate from NVIDIA's operator",
		Long: `Show the state of the GPUs of a cluster and what the GPU operator would do, and convert its objects, without
changing anything. Only cleanup and migrate change the cluster; test runs a pod and deletes it.

Exit codes: 0 success, 1 failure with its reason on standard error, 2 wrong usage. Those of diff, and of commands with
--detailed-exitcode or --check, are in their help. Output is coloured only on a terminal, and not if NO_COLOR is set.`,
		Example: `  kubectl gpu status
  kubectl gpu ui
  kubectl gpu explain gpu-00002
  kubectl gpu top pods --all-namespaces
  kubectl gpu diff -f policy.yaml
  kubectl gpu collect`,
		Version:       version.Version,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl gpu"},
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(
		statusCommand(), uiCommand(), topCommand(), explainCommand(), logsCommand(), testCommand(), validateCommand(),
		renderCommand(), planCommand(), diffCommand(), mirrorCommand(), convertCommand(), collectCommand(), cleanupCommand(),
		migrateCommand(), versionCommand(),
	)
	return root
}
