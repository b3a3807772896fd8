package clusterpolicy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/apply"
	"github.com/clusterpolicy/gpu-operator/internal/effective"
	"github.com/clusterpolicy/gpu-operator/internal/metrics"
	"github.com/clusterpolicy/gpu-operator/internal/observe"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/plan"
	"github.com/clusterpolicy/gpu-operator/internal/render"
	"github.com/clusterpolicy/gpu-operator/internal/status"
)

// pass observes, plans, renders and applies, and leaves what it found in pass. The error is of what
// concerns no single operand.
func (r *Reconciler) pass(ctx context.Context, policy *v1.ClusterPolicy, pass *status.Pass) error {
	snapshot, err := r.observer.Snapshot(ctx)
	if err != nil {
		return err
	}
	pass.Snapshot = snapshot
	r.nodes.Store(int64(len(snapshot.Nodes)))
	lacking, failure := r.Schema.Lacking(ctx)
	pass.Lacking = lacking
	input, err := r.input(ctx, policy, snapshot)
	if err != nil {
		return err
	}
	if !input.Paused() {
		failure = errors.Join(failure, r.OwnNamespace.Privileged(ctx, input.PodSecurity()))
	}
	pass.Plan = r.blueprint.planned(r.Catalogue, input, snapshot)
	r.blueprint.rendersFor(render.Owner{Name: policy.Name, UID: string(policy.UID)}, liveTemplates(snapshot))
	wanted := apply.Wanted{Held: map[string]bool{}}
	for _, step := range pass.Plan.Steps {
		outcome := r.step(ctx, policy, pass, step, &wanted)
		pass.Applied[step.Operand.Name] = outcome
		if step.Action == plan.Hold || step.Holds || outcome.Err != nil {
			// What cannot be told is left alone.
			wanted.Held[string(step.Operand.Name)] = true
		}
	}
	if input.Paused() {
		return failure
	}
	if err := r.Applier.Prune(ctx, policy.UID, kinds(input.Optional), wanted); err != nil {
		failure = errors.Join(failure, fmt.Errorf("removing what is no longer wanted: %w", err))
	}
	return failure
}

// createFailures finds out why DaemonSets lack pods, if any does, and tells when to look again. That it cannot be
// found out keeps nothing else from being told.
func (r *Reconciler) createFailures(ctx context.Context, pass *status.Pass) time.Duration {
	wait, err := r.CreateFailures.Look(ctx, pass.Snapshot.DaemonSets)
	if err != nil {
		log.FromContext(ctx).Error(err, "It is not known why pods are missing")
	}
	pass.CreateFailures = r.CreateFailures.Found()
	return wait
}

// readPods reads the pods that the status needs to see. All else that verdicts on nodes are made of is known by now.
func (r *Reconciler) readPods(ctx context.Context, pass *status.Pass) error {
	if len(pass.Plan.Steps) == 0 {
		return nil
	}
	pass.Memory = &r.memory
	var err error
	pass.Snapshot.Pods, err = r.observer.PodsOn(ctx, r.memory.Wanted(*pass))
	return err
}

// measure is what Prometheus is told of a pass.
func measure(pass status.Pass, found v1.ClusterPolicyStatus) metrics.Pass {
	measured := metrics.Pass{Status: &found, Failed: pass.Failure() != nil, Discovered: pass.Snapshot.AnyDiscovered}
	if input := pass.Plan.Input; len(pass.Plan.Steps) > 0 {
		measured.Nodes = pass.Places
		measured.DriverToolkit, measured.DriverToolkitFound = input.UsesDriverToolkit(pass.Snapshot.Facts...), input.DriverToolkit != nil
	}
	return measured
}

// input is what the plan needs to know: the spec with its defaults, and what the cluster has.
func (r *Reconciler) input(ctx context.Context, policy *v1.ClusterPolicy, snapshot observe.Snapshot) (operand.Input, error) {
	input := operand.Input{
		Spec: effective.Of(policy.Spec), Namespace: r.Namespace, HelperImage: r.HelperImage, OperatorMetrics: r.Metrics,
	}
	var err error
	if input.Optional, err = r.optional.available(ctx, snapshot.Definitions); err != nil {
		return input, err
	}
	if input.DriverToolkit, err = r.driverToolkit(ctx, input, snapshot.Facts); err != nil {
		return input, err
	}
	input.Contents, err = observe.Contents(ctx, r.References, r.Namespace, operand.Uses(r.Catalogue, input))
	return input, err
}

// step renders and applies one operand. A failure concerns this operand and those that require it.
func (r *Reconciler) step(ctx context.Context, policy *v1.ClusterPolicy, pass *status.Pass, step plan.Step, wanted *apply.Wanted) status.Outcome {
	if step.Action != plan.Apply {
		return status.Outcome{}
	}
	for _, requirement := range step.Operand.Requires {
		if requirement.Scope == operand.Cluster && pass.Applied[requirement.On].Err != nil {
			return status.Outcome{Err: fmt.Errorf("%w: %s", status.ErrPrerequisite, requirement.On)}
		}
	}
	objects, err := r.blueprint.rendered(step)
	if err != nil {
		return status.Outcome{Err: err}
	}
	outcome := status.Outcome{}
	var failures []error
	for _, object := range objects {
		wanted.Keep(object)
		if err := r.bring(ctx, policy, pass.Plan.Input.Paused(), object, &outcome); err != nil {
			failures = append(failures, err)
		}
	}
	outcome.Err = errors.Join(failures...)
	return outcome
}

// bring makes an object what it is to be, or counts it where the policy is paused.
func (r *Reconciler) bring(ctx context.Context, policy *v1.ClusterPolicy, paused bool, object render.Object, outcome *status.Outcome) error {
	if paused {
		differs, err := r.Applier.Differs(ctx, policy.UID, object)
		if differs {
			outcome.Pending++
		}
		return err
	}
	wrote, err := r.Applier.Apply(ctx, policy.UID, object)
	outcome.Wrote = outcome.Wrote || wrote
	return err
}

func liveTemplates(snapshot observe.Snapshot) map[string]render.Live {
	live := make(map[string]render.Live, len(snapshot.DaemonSets))
	for name, ds := range snapshot.DaemonSets {
		live[name] = render.LiveDaemonSet(ds)
	}
	return live
}

func kinds(available map[operand.OptionalKind]bool) []client.Object {
	var result []client.Object
	for _, kind := range render.Kinds() {
		result = append(result, kind)
	}
	for _, optional := range render.OptionalKinds() {
		if available[optional.Kind] {
			result = append(result, optional.Object)
		}
	}
	return result
}
