package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterpolicy/gpu-operator/config/crd"
	"github.com/clusterpolicy/gpu-operator/internal/cli/migrationsteps"
	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
)

// The kinds that the way back reads besides those of a migration.
const (
	backKinds        = "pods,controllerrevisions.apps,networkpolicies.networking.k8s.io,poddisruptionbudgets.policy"
	backClusterKinds = "namespaces,runtimeclasses.node.k8s.io,priorityclasses.scheduling.k8s.io," +
		"validatingadmissionpolicies.admissionregistration.k8s.io," +
		"validatingadmissionpolicybindings.admissionregistration.k8s.io"
)

// backRounds limits how often the cluster is read again. Each round takes the steps of one action.
const backRounds = 100

// back carries out the way back to NVIDIA's operator, or its end.
func (o *migrateOptions) back(cmd *cobra.Command) error {
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	cluster, err := o.readBack(ctx)
	if err != nil {
		return err
	}
	if o.finish {
		if refusal := cluster.FinishRefusal(); refusal != "" {
			return errors.New(refusal)
		}
		return o.carryOutBack(cmd, cluster.Finish(), (*migrationsteps.Back).Finish)
	}
	report := cluster.Report()
	if err := o.answer(out, report, backText(report)); err != nil || o.check {
		return err
	}
	return o.carryOutBack(cmd, report.Stop, (*migrationsteps.Back).Steps)
}

// carryOutBack takes steps, after it has printed them. After those of one action it reads the cluster and plans again,
// as the DaemonSet controller works in the meantime. Steps that were not printed before are printed then.
func (o *migrateOptions) carryOutBack(
	cmd *cobra.Command, steps []migrationsteps.Step, plan func(*migrationsteps.Back) []migrationsteps.Step,
) error {
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	if len(steps) == 0 {
		fmt.Fprintln(out, "Nothing is left to do.")
		return nil
	}
	printed := map[string]bool{}
	printNew(out, steps, printed)
	if !o.yes {
		if err := confirm(cmd.InOrStdin(), out, "Do all of this?"); err != nil {
			return err
		}
	}
	for range backRounds {
		if err := o.takeFirst(ctx, steps); err != nil && !errors.Is(err, errConflict) {
			return fmt.Errorf("%w: repeat the command to continue", err)
		}
		cluster, err := o.readBack(ctx)
		if err != nil {
			return err
		}
		if steps = plan(cluster); len(steps) == 0 {
			fmt.Fprintln(out, "Done.")
			return nil
		}
		printNew(out, steps, printed)
	}
	return fmt.Errorf("this is left; repeat the command: %s", stepText(&steps[0]))
}

func printNew(out io.Writer, steps []migrationsteps.Step, printed map[string]bool) {
	for i := range steps {
		if text := stepText(&steps[i]); !printed[text] {
			printed[text] = true
			fmt.Fprintln(out, text)
		}
	}
}

// takeFirst takes the steps at the beginning that have the same action, several at a time if they change one object
// each and nothing waits for it.
func (o *migrateOptions) takeFirst(ctx context.Context, steps []migrationsteps.Step) error {
	end := slices.IndexFunc(steps, func(s migrationsteps.Step) bool { return s.Action != steps[0].Action })
	if end < 0 {
		end = len(steps)
	}
	workers := 1
	switch steps[0].Action {
	case migrationsteps.ActionMove, migrationsteps.ActionUnmark, migrationsteps.ActionSelect:
		workers = nodeWorkers
	}
	_, err := inParallel(workers, end, func(i int) error {
		if err := o.takeBack(ctx, &steps[i]); err != nil {
			return fmt.Errorf("%s: %w", stepText(&steps[i]), err)
		}
		return nil
	})
	return err
}

// takeBack takes one step of the way back.
func (o *migrateOptions) takeBack(ctx context.Context, step *migrationsteps.Step) error {
	of := targetOf(step)
	remove := func(how metav1.DeletionPropagation) error {
		return o.asked.remove(ctx, deletion{propagation: how, wait: o.timeout}, of)
	}
	switch step.Action {
	case migrationsteps.ActionEnd:
		return remove(metav1.DeletePropagationForeground)
	case migrationsteps.ActionOrphan:
		return remove(metav1.DeletePropagationOrphan)
	case migrationsteps.ActionDelete:
		return remove(metav1.DeletePropagationBackground)
	case migrationsteps.ActionRelease:
		return o.release(ctx, step)
	case migrationsteps.ActionCreate:
		return o.asked.create(ctx, step.Resource, step.Patch)
	}
	if step.Patch != nil {
		if err := o.asked.merge(ctx, of, step.Patch); err != nil {
			return err
		}
	}
	if step.StatusPatch == nil {
		return nil
	}
	// Kinds of a CRD have no strategic merge patch.
	kind := types.MergePatchType
	if step.Kind == "Node" {
		kind = types.StrategicMergePatchType
	}
	return o.asked.patch(ctx, of, kind, step.StatusPatch, "status")
}

// readBack reads what the way back depends on.
func (o *migrateOptions) readBack(ctx context.Context) (*migrationsteps.Back, error) {
	facts, err := o.read(ctx)
	if err != nil {
		return nil, err
	}
	add := keep(&facts.Objects)
	namespaced, optional := backKinds, []string{crd.NVIDIADriverName}
	for _, kind := range manifest.OptionalKinds() {
		optional = append(optional, kind.CRD)
	}
	of := selection{resources: definitions, names: optional}
	err = o.asked.get(ctx, of, func(definition *unstructured.Unstructured) error {
		if name := definition.GetName(); name != crd.NVIDIADriverName {
			namespaced += "," + name
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := o.asked.get(ctx, selection{resources: backClusterKinds + "," + namespaced}, add); err != nil {
		return nil, err
	}
	return migrationsteps.NewBack(&facts.Cluster)
}

// targetOf returns the object of a step.
func targetOf(step *migrationsteps.Step) target {
	return target{step.Resource, step.Namespace, step.Name}
}
