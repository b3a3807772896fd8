package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/validate"
)

// validationVariables are the variables of all validate commands.
var validationVariables = variables{"fail-after": "FAIL_AFTER"}

// validation has the flags of all validate commands.
type validation struct {
	flags          *pflag.FlagSet
	node           node
	interval       time.Duration
	maxInterval    time.Duration
	attemptTimeout time.Duration
	failAfter      time.Duration
	// companions are validated together with the component.
	companions []validate.Companion
}

func (v *validation) register(flags *pflag.FlagSet) {
	v.flags = flags
	v.node.register(flags)
	flags.DurationVar(&v.interval, "interval", validate.DefaultInterval,
		"pause after the first failed attempt, with a unit; doubles with each attempt")
	flags.DurationVar(&v.maxInterval, "max-interval", validate.DefaultMaxInterval,
		"longest pause between two attempts, with a unit")
	flags.DurationVar(&v.attemptTimeout, "attempt-timeout", validate.DefaultAttemptTimeout,
		"longest time of one attempt, with a unit")
	flags.DurationVar(&v.failAfter, "fail-after", validate.DefaultFailAfter,
		"fail once attempts have failed for this time, with a unit (1m); waiting for other components does not count; 0s "+
			"for never")
}

// run validates component with check, which is created once the flags are parsed.
func (v *validation) run(component labels.Marker, check func() (validate.Check, error)) error {
	if err := validationVariables.apply(v.flags); err != nil {
		return err
	}
	if v.interval <= 0 || v.maxInterval < v.interval || v.attemptTimeout <= 0 {
		return errors.New(
			"--interval, --max-interval and --attempt-timeout must be above 0s, and --max-interval not below --interval")
	}
	if v.failAfter < 0 {
		return fmt.Errorf("--fail-after=%s is negative; use 0s to retry without a limit", v.failAfter)
	}
	return v.node.run(func(ctx context.Context, markers marker.Dir, log *slog.Logger) error {
		check, err := check()
		if err != nil {
			return err
		}
		return validate.Run{
			Component: component, Markers: markers, Check: check, Log: log,
			Companions: v.companions,
			Validated: func(driverInstance string) {
				leaveMessage(labels.ValidatedMessage+cmp.Or(driverInstance, labels.NoDriverInstance), v.node.terminationLog)
			},
			Interval: v.interval, MaxInterval: v.maxInterval, AttemptTimeout: v.attemptTimeout, FailAfter: v.failAfter,
		}.Validate(ctx)
	})
}

func validateCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "validate",
		Short: "Validate a part of the stack on this node, and write its marker",
		Long: `Validate a part of the stack on this node, with retries until it works, and write its marker. Attempts that
fail for --fail-after end it, so that the kubelet shows the reason and restarts the container. The reason is also
in the file COMPONENT` + labels.ReasonSuffix + ` next to the markers.

Environment variables of all validations, overridden by the flag:
  FAIL_AFTER  as --fail-after`,
		RunE: requireSubcommand("driver, toolkit, cuda, plugin, mofed, nvidia-fs, gdrcopy or nvidia-peermem"),
	}
	command.AddCommand(validateDriver(), validateToolkit(), validateCUDA(), validatePlugin(), validateMOFED())
	for _, module := range []labels.Marker{labels.MarkerNvidiaFS, labels.MarkerGDRCopy, labels.MarkerPeerMem} {
		command.AddCommand(validateModule(module))
	}
	return command
}

func validateToolkit() *cobra.Command {
	var validation validation
	command := &cobra.Command{
		Use:   "toolkit",
		Short: "Run the nvidia-smi that the container runtime injects into this container",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return validation.run(labels.MarkerToolkit, func() (validate.Check, error) { return validate.Toolkit, nil })
		},
	}
	validation.register(command.Flags())
	return command
}
