package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterpolicy/gpu-operator/internal/cli/migrationsteps"
)

// errBlocked makes the plugin exit with exitBlocked. It is not printed.
var errBlocked = errors.New("the migration is blocked")

// migrateOptions are the flags of migrate.
type migrateOptions struct {
	check, finish, yes bool
	// nodeDiscovery and removeLabels are for finish.
	nodeDiscovery, removeLabels bool
	// toNVIDIA: the way back.
	toNVIDIA   bool
	output     string
	timeout    time.Duration
	connection connection
	// asked is the cluster.
	asked *session
}

func migrateCommand() *cobra.Command {
	o := migrateOptions{}
	command := &cobra.Command{
		Use:   "migrate",
		Short: "Migrate from NVIDIA's operator to this one, or back, while everything runs",
		Long: `Take the steps of a migration from NVIDIA's operator that no installer takes. docs/migration.md has all steps.

--check prints what a migration would change, and changes nothing: pods of operands that are replaced or kept, fields
of the policy with another meaning, objects that are removed, and what blocks the migration, with the remedy.

Without it, the command annotates what the Helm release of NVIDIA's chart owns, so that helm upgrade does not delete it,
scales the Deployment of NVIDIA's operator to 0, waits until its pods have ended, deletes it, records on the nodes which
labels nvidia.com/mig.config it has set, so that they are removed with the stack, and removes the owner references to
the policy from accounts and roles that the installer takes over. Operands and GPU work continue.

--finish, after this operator is installed and has taken over, removes roles and accounts that are no longer used, the
annotation, and Helm's record of a release of NVIDIA's chart under another name. Node Feature Discovery stays.

--finish --node-discovery also replaces Node Feature Discovery of NVIDIA's chart by node-discovery of this operator. No
node loses a label: nfd-master is stopped first, and node-discovery takes over the labels of GPUs, kernel and operating
system before anything else is deleted, which takes up to 5 minutes. Other labels of Node Feature Discovery are listed
and keep their values, unless --remove-labels removes them.

--back is the way from this operator to NVIDIA's, with --check and --finish in the same sense. It stops this operator,
removes its finalizer and its admission policies, and merges its DaemonSets into those that NVIDIA's operator handles,
without ending a pod. Then install NVIDIA's operator. --back --finish removes what only this operator has, such as node
discovery and its labels and conditions of nodes, once NVIDIA's has taken over.

Each step can be repeated. Exit codes: 0 success and nothing blocks, 1 failure, 2 wrong usage, or with --check a
migration that is blocked.

It needs the right to list and get what is named above, Nodes, Pods, ClusterPolicies and the objects of the stack, and
to change these objects.`,
		Example: `  kubectl gpu migrate --check
  kubectl gpu migrate --yes
  kubectl gpu migrate --finish --yes
  kubectl gpu migrate --finish --node-discovery
  kubectl gpu migrate --back --check
  kubectl gpu migrate --back --yes
  kubectl gpu migrate --back --finish --yes`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			if err := o.run(cmd); err != nil && !errors.Is(err, errBlocked) {
				return failure{err}
			} else if err != nil {
				return err
			}
			return nil
		},
	}
	o.addFlags(command.Flags())
	return command
}

func (o *migrateOptions) addFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&o.check, "check", false, "only print what a migration would change")
	flags.BoolVar(&o.finish, "finish", false, "remove what is left of NVIDIA's operator after this one has taken over")
	flags.BoolVar(&o.nodeDiscovery, "node-discovery", false,
		"with --finish: replace Node Feature Discovery of NVIDIA's chart by this operator's node discovery")
	flags.BoolVar(&o.removeLabels, "remove-labels", false,
		"with --node-discovery: remove the labels of Node Feature Discovery that node discovery does not write")
	flags.BoolVar(&o.toNVIDIA, "back", false, "go back from this operator to NVIDIA's")
	flags.BoolVarP(&o.yes, "yes", "y", false, "do not ask for confirmation")
	flags.StringVarP(&o.output, "output", "o", formatText, "format of the output of --check: text or json")
	flags.DurationVar(&o.timeout, "timeout", 10*time.Minute,
		"how long to wait until what is removed has ended, and until node discovery has taken over")
	o.connection.addFlags(flags)
}

// validate checks that the flags agree.
func (o *migrateOptions) validate() error {
	switch {
	case o.check && o.finish:
		return errors.New("--check and --finish cannot be used together: give one")
	case o.nodeDiscovery && !o.finish:
		return errors.New("--node-discovery is for --finish: give both")
	case o.nodeDiscovery && o.toNVIDIA:
		return errors.New("--node-discovery and --back cannot be used together: give one")
	case o.removeLabels && !o.nodeDiscovery:
		return errors.New("--remove-labels is for --node-discovery: give both")
	case o.timeout <= 0:
		return errNoTimeout
	case o.output != formatText && o.output != formatJSON:
		return fmt.Errorf("--output %s: give text or json", o.output)
	}
	return nil
}

func (o *migrateOptions) run(cmd *cobra.Command) error {
	var err error
	if o.asked, err = o.connection.open(); err != nil {
		return err
	}
	if o.toNVIDIA {
		return o.back(cmd)
	}
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	facts, err := o.read(ctx)
	if err != nil {
		return err
	}
	if o.finish {
		return o.runFinish(cmd, facts)
	}
	if err := o.preview(ctx, facts); err != nil {
		return err
	}
	report := migrationsteps.Of(facts)
	if err := o.answer(out, report, reportText(report)); err != nil || o.check {
		return err
	}
	return o.carryOut(cmd, report.Stop)
}

// answer writes the report if only that is asked for, and fails if something blocks the migration.
func (o *migrateOptions) answer(out io.Writer, report *migrationsteps.Report, text string) error {
	if o.check {
		if err := writeReport(out, report, text, o.output); err != nil {
			return err
		}
	}
	switch {
	case len(report.Blockers) == 0:
		return nil
	case o.check:
		return errBlocked
	default:
		blocker := report.Blockers[0]
		return fmt.Errorf("%s: %s; nothing was changed", blocker.Cause, blocker.Remedy)
	}
}

// carryOut takes steps, after it has printed them.
func (o *migrateOptions) carryOut(cmd *cobra.Command, steps []migrationsteps.Step) error {
	out := cmd.OutOrStdout()
	if len(steps) == 0 {
		fmt.Fprintln(out, "Nothing is left to do.")
		return nil
	}
	for i := range steps {
		fmt.Fprintln(out, stepText(&steps[i]))
	}
	if !o.yes {
		if err := confirm(cmd.InOrStdin(), out, "Do all of this?"); err != nil {
			return err
		}
	}
	for i := range steps {
		if err := o.take(cmd.Context(), out, &steps[i]); err != nil {
			return fmt.Errorf("%s: %w: repeat the command to continue", stepText(&steps[i]), err)
		}
	}
	fmt.Fprintln(out, "Done.")
	return nil
}

// take takes one step.
func (o *migrateOptions) take(ctx context.Context, out io.Writer, step *migrationsteps.Step) error {
	if len(step.Nodes) > 0 {
		return o.takeOnNodes(ctx, out, step)
	}
	of := targetOf(step)
	patch := func(content map[string]any) error { return o.asked.merge(ctx, of, content) }
	annotate := func(values map[string]any) error {
		return patch(map[string]any{"metadata": map[string]any{"annotations": values}})
	}
	switch step.Action {
	case migrationsteps.ActionKeep:
		return annotate(map[string]any{migrationsteps.ResourcePolicy: migrationsteps.Keep})
	case migrationsteps.ActionRelease:
		return o.release(ctx, step)
	case migrationsteps.ActionDisown:
		return patch(map[string]any{"metadata": map[string]any{
			"ownerReferences": step.Owners, "resourceVersion": step.ResourceVersion,
		}})
	case migrationsteps.ActionStop:
		if err := patch(map[string]any{"spec": map[string]any{"replicas": 0}}); err != nil {
			return err
		}
		fmt.Fprintf(out, "Waiting until the pods of %s have ended\n", step.Object)
		return o.awaitEnd(ctx, step)
	case migrationsteps.ActionDeleteAll:
		return o.deleteAll(ctx, step)
	default:
		return o.asked.remove(ctx, deletion{wait: o.timeout}, of)
	}
}

// release removes annotations of an object.
func (o *migrateOptions) release(ctx context.Context, step *migrationsteps.Step) error {
	removed := map[string]any{}
	for _, key := range step.Annotations {
		removed[key] = nil
	}
	content := map[string]any{"metadata": map[string]any{"annotations": removed}}
	return o.asked.merge(ctx, targetOf(step), content)
}

// deleteAll deletes all objects of a kind in a namespace.
func (o *migrateOptions) deleteAll(ctx context.Context, step *migrationsteps.Step) error {
	var all []target
	of := selection{resources: step.Resource, namespace: step.Namespace}
	err := o.asked.get(ctx, of, func(object *unstructured.Unstructured) error {
		all = append(all, target{step.Resource, step.Namespace, object.GetName()})
		return nil
	})
	if err != nil {
		return err
	}
	return o.asked.remove(ctx, deletion{wait: o.timeout}, all...)
}

// awaitEnd waits until no pod of a Deployment is left.
func (o *migrateOptions) awaitEnd(ctx context.Context, step *migrationsteps.Step) error {
	if step.Selector == "" {
		return errors.New("the Deployment has no selector")
	}
	pods := metav1.ListOptions{LabelSelector: step.Selector}
	return awaitEnd(ctx, o.timeout, func(ctx context.Context) (left string, err error) {
		_, err = list(ctx, o.asked.headers("pods", step.Namespace), pods, func(pod *metav1.PartialObjectMetadata) {
			left = "pod " + pod.Name
		})
		return left, err
	})
}
