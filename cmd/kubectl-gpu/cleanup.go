package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
	"github.com/clusterpolicy/gpu-operator/internal/removal/cleanup"
)

// cleanupRounds limits how often the cluster is read again: a write fails if its object has changed meanwhile.
const cleanupRounds = 4

// errNoTimeout is the error of wrong usage without a time to wait.
var errNoTimeout = errors.New("--timeout: give a positive duration, such as 10m")

// cleanupOptions are the flags of cleanup.
type cleanupOptions struct {
	dryRun, force, yes bool
	timeout            time.Duration
	connection         connection
	// asked is the cluster.
	asked *session
	// impatient: pods of operands have not ended within the timeout.
	impatient bool
}

func cleanupCommand() *cobra.Command {
	o := cleanupOptions{}
	command := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove all ClusterPolicies and what is left of the stack, without the operator",
		Long: `Remove all ClusterPolicies and what is left of the stack in the cluster, without the operator. It is for a
cluster where the operator is gone, or does not start any more, and left a ClusterPolicy that stays Terminating, or
operands, or labels and conditions of nodes. Where the operator runs, delete the ClusterPolicy instead: it does the
same, and cleans up the nodes' hosts.

It deletes the ClusterPolicies, then the operands, each after those that need it, then the other objects of the stack
and all NVIDIADrivers. It removes from nodes the labels, annotations, taints and conditions of the operator, and its
cordons, and takes the finalizer off the ClusterPolicies last. What others have written stays. It
prints first what it will do, and can be repeated.

It does nothing while an operator runs or while pods use GPUs of the nodes concerned, which it names. --force removes
the stack nevertheless: these pods lose their GPUs, and are not evicted. Files of the driver and of the toolkit that
their pods do not remove themselves stay on the hosts.

It needs the right to list all that is named above, to get DaemonSets, to patch Nodes and their status, Namespaces
and ClusterPolicies, and to delete ClusterPolicies, NVIDIADrivers, DaemonSets, Services, ConfigMaps and RuntimeClasses,
and where they exist ServiceMonitors and PrometheusRules.`,
		Example: `  kubectl gpu cleanup --dry-run
  kubectl gpu cleanup --yes`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.timeout <= 0 {
				return errNoTimeout
			}
			if err := o.run(cmd); err != nil {
				return failure{err}
			}
			return nil
		},
	}
	flags := command.Flags()
	flags.BoolVar(&o.dryRun, "dry-run", false, "only print what would be removed")
	flags.BoolVar(&o.force, "force", false, "remove the stack also while an operator runs, or while pods use GPUs")
	flags.BoolVarP(&o.yes, "yes", "y", false, "do not ask for confirmation")
	flags.DurationVar(&o.timeout, "timeout", 5*time.Minute,
		"how long to wait until the pods of a group of operands are gone")
	o.connection.addFlags(flags)
	return command
}

func (o *cleanupOptions) run(cmd *cobra.Command) error {
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	var err error
	if o.asked, err = o.connection.open(); err != nil {
		return err
	}
	plan, err := o.read(ctx)
	if err != nil {
		return err
	}
	if plan.IsEmpty() {
		fmt.Fprintln(out, "Nothing of the GPU stack is left in the cluster.")
		return nil
	}
	fmt.Fprint(out, cleanupText(plan))
	if refusal := refusalOf(plan); refusal != "" && !o.force {
		return errors.New(refusal + "\n  nothing was changed; --force removes the stack nevertheless")
	}
	if o.dryRun {
		return nil
	}
	if !o.yes {
		if err := confirm(cmd.InOrStdin(), out, "Remove all of this?"); err != nil {
			return err
		}
	}
	return o.carryOut(ctx, out, plan)
}

// carryOut carries out the plan, and plans again until nothing is left.
func (o *cleanupOptions) carryOut(ctx context.Context, out io.Writer, plan *cleanup.Plan) error {
	var failed error
	for range cleanupRounds {
		if failed = o.remove(ctx, out, plan); failed != nil && !errors.Is(failed, errConflict) {
			return failed
		}
		var err error
		if plan, err = o.read(ctx); err != nil {
			return err
		}
		if plan.IsEmpty() {
			fmt.Fprintln(out, "Nothing of the GPU stack is left in the cluster.")
			return nil
		}
		if refusal := refusalOf(plan); refusal != "" && !o.force {
			return errors.Join(failed, errors.New(refusal+"\n  the removal has stopped halfway: repeat the command after that"))
		}
	}
	return errors.Join(failed, fmt.Errorf("this is left; repeat the command:\n%s", strings.TrimSpace(cleanupText(plan))))
}

// read reads the cluster, and plans what to remove.
func (o *cleanupOptions) read(ctx context.Context) (*cleanup.Plan, error) {
	catalogue, err := operands.Catalogue()
	if err != nil {
		return nil, err
	}
	cluster, err := o.readCluster(ctx)
	if err != nil {
		return nil, err
	}
	return cleanup.Of(cluster, catalogue), nil
}

// refusalOf returns why the plan is not carried out without --force; empty if it is.
func refusalOf(plan *cleanup.Plan) string {
	var lines []string
	if len(plan.Operators) > 0 {
		lines = append(lines, "an operator is running ("+strings.Join(plan.Operators, "; ")+"): "+
			"delete the ClusterPolicy, and it removes the stack; or remove the operator first")
	}
	if len(plan.Busy) > 0 {
		lines = append(lines, fmt.Sprintf("GPUs are in use on %s: end the pods that are listed above",
			count(len(plan.Busy), "node")))
	}
	return strings.Join(lines, "\n  ")
}

// confirm asks whether to go on.
func confirm(in io.Reader, out io.Writer, question string) error {
	fmt.Fprint(out, question+" [y/N]: ")
	answer, err := bufio.NewReader(in).ReadString('\n')
	fmt.Fprintln(out)
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	if err != nil && answer == "" {
		return errors.New("not confirmed, and nothing was changed: answer y, or add --yes")
	}
	return errors.New("not confirmed, and nothing was changed")
}
