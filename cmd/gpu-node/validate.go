package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/validate"
)

// proverVariables are those of all validate commands.
var proverVariables = variables{"fail-after": "FAIL_AFTER"}

// prover holds the flags of all validate commands.
type prover struct {
	flags          *pflag.FlagSet
	node           node
	interval       time.Duration
	maxInterval    time.Duration
	attemptTimeout time.Duration
	failAfter      time.Duration
	// companions are proven with the component.
	companions []validate.Companion
}

func (p *prover) register(flags *pflag.FlagSet) {
	p.flags = flags
	p.node.register(flags)
	flags.DurationVar(&p.interval, "interval", validate.DefaultInterval,
		"pause after the first failed attempt, with a unit; doubles with each attempt")
	flags.DurationVar(&p.maxInterval, "max-interval", validate.DefaultMaxInterval,
		"longest pause between two attempts, with a unit")
	flags.DurationVar(&p.attemptTimeout, "attempt-timeout", validate.DefaultAttemptTimeout,
		"longest time of one attempt, with a unit")
	flags.DurationVar(&p.failAfter, "fail-after", validate.DefaultFailAfter,
		"give up once attempts have failed for this time, with a unit, not counting what others are still to bring; 0s is "+
			"never")
}

// prove validates component with check, which is made with the flags known.
func (p *prover) prove(component labels.Marker, check func() (validate.Check, error)) error {
	if err := proverVariables.apply(p.flags); err != nil {
		return err
	}
	if p.interval <= 0 || p.maxInterval < p.interval || p.attemptTimeout <= 0 {
		return errors.New(
			"--interval, --max-interval and --attempt-timeout must be above 0s, and --max-interval not below --interval")
	}
	if p.failAfter < 0 {
		return fmt.Errorf("--fail-after=%s is negative; use 0s to try for ever", p.failAfter)
	}
	return p.node.run(func(ctx context.Context, markers marker.Dir, log *slog.Logger) error {
		check, err := check()
		if err != nil {
			return err
		}
		return validate.Run{
			Component: component, Markers: markers, Check: check, Log: log,
			Companions: p.companions,
			Interval:   p.interval, MaxInterval: p.maxInterval, AttemptTimeout: p.attemptTimeout, FailAfter: p.failAfter,
		}.Validate(ctx)
	})
}

func validateCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "validate",
		Short: "Prove that a part of the stack works on this node, and write its marker",
		Long: `Prove that a part of the stack works on this node, again and again until it does, and write its
marker. Attempts that fail for --fail-after end it, so that the kubelet shows the reason and starts it
once more. The reason is also in the file COMPONENT` + labels.ReasonSuffix + ` beside the markers.

An environment variable of all of them, over which the flag wins:
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
	var prover prover
	command := &cobra.Command{
		Use:   "toolkit",
		Short: "Run the nvidia-smi that the container runtime puts into this container",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return prover.prove(labels.MarkerToolkit, func() (validate.Check, error) { return validate.Toolkit, nil })
		},
	}
	prover.register(command.Flags())
	return command
}
