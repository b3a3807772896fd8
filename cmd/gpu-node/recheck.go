package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/validate"
)

// recheckVariables are the variables of recheck.
var recheckVariables = variables{"interval": "RECHECK_INTERVAL"}

// recheck has the flags of gpu-node recheck.
type recheck struct {
	validate.Recheck
	node node
}

func (r *recheck) register(flags *pflag.FlagSet) {
	r.node.register(flags)
	flags.StringVar(&r.SysRoot, "sys-root", "/sys", "where sysfs is mounted")
	flags.StringVar(&r.ProcRoot, "proc-root", "/proc", "where procfs is mounted")
	flags.StringVar(&r.DevRoot, "dev-root", labels.DevMount, "the host's /dev, as mounted here")
	flags.StringVar(&r.StateFile, "state-file", labels.RecheckState,
		"file that keeps what the node had when it was validated")
	flags.DurationVar(&r.Interval, "interval", validate.DefaultRecheckInterval,
		"time between two checks, with a unit; it varies by a tenth. 0s for no checks")
	flags.DurationVar(&r.Confirm, "confirm", validate.DefaultRecheckConfirm,
		"time after which a loss is checked again before it counts, with a unit")
}

func recheckCommand() *cobra.Command {
	var r recheck
	command := &cobra.Command{
		Use:   labels.RecheckCommand,
		Short: "Check at intervals that the driver and the GPUs are still there: the main container of the validator",
		Long: `Note which GPUs and device nodes the node has, and check at intervals until SIGTERM that they are still
there, and that the kernel module of the driver is loaded and was not replaced. A loss ends the command with its reason.
It reads sysfs, procfs and the host's /dev, and opens no GPU. It pauses while the marker of the driver is not valid.

Environment variables, overridden by the flags:
  RECHECK_INTERVAL  as --interval`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := recheckVariables.apply(command.Flags()); err != nil {
				return err
			}
			if r.Interval < 0 || r.Confirm <= 0 {
				return errors.New("--interval must not be negative, and --confirm must be above 0s")
			}
			return r.node.run(r.run)
		},
	}
	r.register(command.Flags())
	return command
}

func (r *recheck) run(ctx context.Context, markers marker.Dir, log *slog.Logger) error {
	log.Info("all validations are successful", "checked again every", r.Interval)
	if r.Interval == 0 {
		<-ctx.Done()
		return nil
	}
	r.Markers, r.Log = markers, log
	return r.Run(ctx)
}
