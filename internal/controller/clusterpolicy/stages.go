package clusterpolicy

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterpolicy/gpu-operator/internal/apply"
	"github.com/clusterpolicy/gpu-operator/internal/assess"
	"github.com/clusterpolicy/gpu-operator/internal/effective"
	"github.com/clusterpolicy/gpu-operator/internal/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/observe"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/plan"
	"github.com/clusterpolicy/gpu-operator/internal/render"
	"github.com/clusterpolicy/gpu-operator/internal/status"
)

// observe reads the cluster, and publishes what nodes are assessed by. It reports whether the pass goes on: it does not
// without a policy, before all nodes are known, and after a failure.
func (s *scope) observe(ctx context.Context) bool {
	var err error
	if s.policy, s.all, err = observe.Policies(ctx, s.Client); err != nil {
		s.fail(err)
		return false
	}
	if s.fleet = s.Fleet.View(); !s.fleet.Hydrated {
		// Its event follows.
		return false
	}
	s.nodes.Store(int64(len(s.fleet.Nodes)))
	// Before there is a policy: reading the definition for the first time takes a while.
	s.observeDefinitions(ctx)
	if s.policy == nil {
		s.withoutPolicy(ctx)
		return false
	}
	if s.idle = s.hasVanished(); s.idle {
		return false
	}
	whole, err := s.isWhole(ctx)
	if s.frozen = !whole; err != nil {
		s.fail(err)
		return false
	}
	if s.snapshot, err = observe.Cluster(ctx, s.Client, s.Namespace); err != nil {
		s.fail(err)
		return false
	}
	if s.frozen {
		s.freeze(ctx)
		return false
	}
	s.thaw(ctx)
	input, err := s.input(ctx)
	if err != nil {
		s.fail(err)
		return false
	}
	decisions := decide(s.Fleet.Basis(), s.Catalogue, s.policy.Spec, input)
	stack := assess.Stack{DaemonSets: s.snapshot.DaemonSets, CreateFailures: s.createFailures(ctx)}
	s.basis = s.Fleet.Publish(fleet.Basis{Policy: s.policy, Decisions: decisions, Stack: stack}, s.now)
	return true
}

// withoutPolicy has nodes released and the namespace given up, unless DaemonSets were left to run on without a policy.
func (s *scope) withoutPolicy(ctx context.Context) {
	reading, cancel := context.WithTimeout(ctx, s.Timing.Deadline)
	defer cancel()
	orphans, err := observe.Orphans(reading, s.Client, s.Live, s.Namespace, s.all)
	if err != nil {
		s.fail(err)
		return
	}
	orphaned, before := len(orphans) > 0, s.Fleet.Basis()
	if orphaned && (before == nil || !before.Kept) {
		log.FromContext(ctx).Info("There is no ClusterPolicy, and DaemonSets of one run on: nodes keep their labels until a ClusterPolicy adopts the DaemonSets or they are deleted", "daemonSets", orphans)
	}
	s.Fleet.Publish(fleet.Basis{Kept: orphaned}, s.now)
	if !orphaned {
		s.fail(s.Applier.Privileged(ctx, s.Namespace, false))
	}
}

// observeDefinitions compares the definition of ClusterPolicy with the operator's own. That it cannot be read keeps
// nothing else from being done.
func (s *scope) observeDefinitions(ctx context.Context) {
	reading, cancel := context.WithTimeout(ctx, s.Timing.Deadline)
	defer cancel()
	missing, err := s.Schema.Lacking(reading)
	s.missingFields = missing
	s.fail(err)
}

// input is what the decisions follow from: the spec with its defaults, and what it refers to.
func (s *scope) input(ctx context.Context) (operand.Input, error) {
	input := operand.Input{
		Spec: effective.Of(s.policy.Spec), Namespace: s.Namespace, HelperImage: s.HelperImage, OperatorMetrics: s.Metrics,
		AppliedSpec: s.read.String(),
	}
	if input.Paused() {
		// It is not applied.
		input.AppliedSpec = s.recorded.String()
	}
	var err error
	if s.optional, err = s.Kinds.Follow(ctx, s.snapshot.Definitions); err != nil {
		return input, err
	}
	if input.DriverToolkit, err = s.driverToolkit(ctx, input); err != nil {
		return input, err
	}
	input.Contents, err = observe.Contents(ctx, s.References, s.Namespace, s.Catalogue.Uses(input))
	return input, err
}

// One object in one namespace, which only OpenShift has: a role in that namespace could not be installed
// elsewhere.
// +kubebuilder:rbac:groups=image.openshift.io,resources=imagestreams,resourceNames=driver-toolkit,verbs=list;watch

// driverToolkit finds the images of OpenShift's driver toolkit if any node needs one. That they cannot be read concerns
// the drivers of these nodes only, whose verdicts report it.
func (s *scope) driverToolkit(ctx context.Context, input operand.Input) (map[string]string, error) {
	if !input.UsesDriverToolkit(s.fleet.EachFacts()) {
		return nil, s.DriverToolkit.Forget(ctx)
	}
	images, err := s.DriverToolkit.Images(ctx)
	if err != nil {
		log.FromContext(ctx).Error(err, "Nodes with Red Hat CoreOS get no driver")
	}
	return images, nil
}

// createFailures are why DaemonSets have fewer pods than nodes, as far as that is known. That it cannot be found out
// keeps nothing else from being reported.
func (s *scope) createFailures(ctx context.Context) map[string]assess.CreateFailure {
	reading, cancel := context.WithTimeout(ctx, s.Timing.Deadline)
	defer cancel()
	wait, err := s.CreateFailures.Look(reading, s.snapshot.DaemonSets)
	if err != nil {
		log.FromContext(ctx).Error(err, "Finding out why pods are missing")
	}
	s.sooner(wait)
	return s.CreateFailures.Found()
}

// plan makes the plan for the nodes as they are.
func (s *scope) plan() {
	s.planned = s.drafts.compute(s.basis.Decisions, s.optional, s.fleet)
}

// render makes the objects of each step that applies some. A step that cannot be rendered concerns its operand alone.
func (s *scope) render(ctx context.Context) {
	owner := render.Owner{Name: s.policy.Name, UID: string(s.policy.UID)}
	for _, step := range s.planned.Steps {
		if step.Action != plan.Apply {
			continue
		}
		live, err := s.live(ctx, step)
		if err != nil {
			// Nothing else tries that call again.
			s.fail(err)
			s.applied[step.Operand.Name] = status.Outcome{Err: err}
			continue
		}
		objects, err := s.drafts.render(s.planned, step, owner, live)
		if err != nil {
			s.applied[step.Operand.Name] = status.Outcome{Err: err}
			continue
		}
		s.objects[step.Operand.Name] = objects
	}
}

// apply writes the objects in two rounds, so that what DaemonSets need is there first, and prunes what is no longer
// wanted. Of a policy that is paused it only counts what it would write.
func (s *scope) apply(ctx context.Context) {
	if s.planned.Input.Paused() {
		s.compare(ctx)
		return
	}
	s.fail(s.Applier.Privileged(ctx, s.Namespace, s.planned.Input.PodSecurity()))
	s.round(ctx, isReferredTo)
	s.awaitPrerequisites()
	s.round(ctx, func(object render.Object) bool { return !isReferredTo(object) })
	s.prune(ctx)
}

// isReferredTo reports whether pods name such an object and do not start without it.
func isReferredTo(object render.Object) bool {
	switch object.(type) {
	case *corev1.ConfigMap, *nodev1.RuntimeClass:
		return true
	}
	return false
}

// round applies those objects of all operands at once.
func (s *scope) round(ctx context.Context, belongs func(render.Object) bool) {
	var objects []client.Object
	var of []operand.Name
	for _, step := range s.planned.Steps {
		for _, object := range s.objects[step.Operand.Name] {
			if belongs(object) {
				objects, of = append(objects, object), append(of, step.Operand.Name)
			}
		}
	}
	for i, result := range s.Applier.Round(ctx, s.policy.UID, objects) {
		outcome := s.applied[of[i]]
		outcome.Wrote = outcome.Wrote || result.Wrote
		if result.Repair != nil {
			log.FromContext(ctx).Info("Repaired on which nodes pods run", "object", result.Repair.Object, "field", result.Repair.Field, "manager", result.Repair.Manager)
			s.Status.Repaired(ctx, s.policy, result.Repair)
		}
		outcome.Err = errors.Join(outcome.Err, result.Err)
		s.applied[of[i]] = outcome
	}
}

// awaitPrerequisites holds back the operands that need what could not be applied of another one.
func (s *scope) awaitPrerequisites() {
	for _, step := range s.planned.Steps {
		for _, requirement := range step.Operand.Requires {
			if requirement.Scope == operand.Cluster && s.applied[requirement.On].Err != nil && s.applied[step.Operand.Name].Err == nil {
				s.applied[step.Operand.Name] = status.Outcome{Err: fmt.Errorf("%w: %s", status.ErrPrerequisite, requirement.On)}
			}
		}
		if errors.Is(s.applied[step.Operand.Name].Err, status.ErrPrerequisite) {
			delete(s.objects, step.Operand.Name)
		}
	}
}

// compare counts the objects that differ from the spec.
func (s *scope) compare(ctx context.Context) {
	for _, step := range s.planned.Steps {
		outcome := s.applied[step.Operand.Name]
		for _, object := range s.objects[step.Operand.Name] {
			differs, err := s.Applier.Differs(ctx, s.policy.UID, object)
			if differs {
				outcome.Pending++
			}
			outcome.Err = errors.Join(outcome.Err, err)
		}
		s.applied[step.Operand.Name] = outcome
	}
}

// prune deletes what is no longer wanted. What could not be decided, rendered or applied of an operand leaves all of it.
func (s *scope) prune(ctx context.Context) {
	wanted := apply.Wanted{Held: map[string]bool{}}
	for _, step := range s.planned.Steps {
		if step.Action == plan.Hold || step.Holds || s.applied[step.Operand.Name].Err != nil {
			wanted.Held[string(step.Operand.Name)] = true
		}
		for _, object := range s.objects[step.Operand.Name] {
			wanted.Keep(object)
		}
	}
	if err := s.Applier.Prune(ctx, s.policy.UID, kinds(s.optional), wanted); err != nil {
		s.fail(fmt.Errorf("removing what is no longer wanted: %w", err))
	}
}

// live are the DaemonSets of a step's operand, as far as they decide what is rendered, by name. Where a new one may get
// the name of the operand, the API server is asked who has it: one that the cache does not show yet, or the pods that
// one has left.
func (s *scope) live(ctx context.Context, step plan.Step) (map[string]render.Live, error) {
	live, o := map[string]render.Live{}, &step.Operand
	for name, ds := range s.snapshot.DaemonSets {
		of := operand.Name(ds.Labels[labels.Operand])
		if of == o.Name || of == "" && name == o.DaemonSet {
			live[name] = render.LiveDaemonSet(ds)
		}
	}
	if !render.MayAssignBaseName(o, step.Instances, live) {
		return live, nil
	}
	reading, cancel := context.WithTimeout(ctx, s.Timing.Deadline)
	defer cancel()
	ds, pod, err := observe.HolderOf(reading, s.Live, s.Namespace, o.DaemonSet)
	switch {
	case ds != nil:
		live[o.DaemonSet] = render.LiveDaemonSet(ds)
	case pod != nil:
		live[o.DaemonSet] = render.LivePod(pod)
	}
	return live, err
}
