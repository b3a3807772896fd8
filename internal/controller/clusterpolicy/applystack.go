package clusterpolicy

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
	"github.com/clusterpolicy/gpu-operator/internal/stack/apply"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/stack/rollout"
	"github.com/clusterpolicy/gpu-operator/internal/status"
)

// apply writes the objects in three rounds, and then prunes: first what pods refer to, then the driver and what injects
// it, then the rest. kube-controller-manager creates the pods of two DaemonSets at a time by default, in the order in
// which it sees them, and the pods of the other operands wait for those of the second round. If the policy is paused,
// apply only counts the objects that it would write.
func (s *scope) apply(ctx context.Context) {
	s.dropFinalizers(ctx)
	if s.planned.Input.Paused() {
		s.countPending(ctx)
		return
	}
	s.fail(s.Applier.SetPodSecurity(ctx, s.Namespace, s.planned.Input.PodSecurity()))
	s.keepScript(ctx)
	s.applyObjects(ctx, func(_ *operand.Operand, object manifest.Object) bool { return isPrerequisite(object) })
	s.skipDependents()
	s.takeOver(ctx)
	s.applyObjects(ctx, func(o *operand.Operand, object manifest.Object) bool {
		return !isPrerequisite(object) && isAwaited(o)
	})
	s.applyObjects(ctx, func(o *operand.Operand, object manifest.Object) bool {
		return !isPrerequisite(object) && !isAwaited(o)
	})
	s.prune(ctx)
	s.pruneLeft(ctx)
}

// isPrerequisite reports whether pods refer to such an object and cannot start without it.
func isPrerequisite(object manifest.Object) bool {
	switch object.(type) {
	case *corev1.ConfigMap, *nodev1.RuntimeClass:
		return true
	}
	return false
}

// isAwaited reports whether nodes get the labels of other operands only once this one is ready there.
func isAwaited(o *operand.Operand) bool { return o.UpdatesOnDelete || o.IsInjector }

// applyObjects applies the included objects of all operands in one round.
func (s *scope) applyObjects(ctx context.Context, include func(*operand.Operand, manifest.Object) bool) {
	var objects []client.Object
	var operands []*operand.Operand
	for i := range s.planned.Steps {
		step := &s.planned.Steps[i]
		for _, object := range s.objects[step.Operand.Name] {
			if include(&step.Operand, object) {
				objects, operands = append(objects, object), append(operands, &step.Operand)
			}
		}
	}
	for i, result := range s.Applier.ApplyAll(ctx, s.policy.UID, objects) {
		outcome := s.applied[operands[i].Name]
		outcome.Wrote = outcome.Wrote || result.Wrote && !s.keepsPods(objects[i])
		if result.Repair != nil {
			log.FromContext(ctx).Info("Reverted a change by another client",
				"object", result.Repair.Object, "field", result.Repair.Field, "manager", result.Repair.Manager)
			s.Status.RecordRepair(ctx, s.policy, result.Repair)
		}
		outcome.Err = errors.Join(outcome.Err, withFields(s.planned, operands[i], objects[i], result.Err))
		s.applied[operands[i].Name] = outcome
	}
}

// keepsPods reports whether the object is a DaemonSet that was read with the same template digest, so that writing it
// makes no pod outdated.
func (s *scope) keepsPods(object client.Object) bool {
	live, exists := s.snapshot.DaemonSets[object.GetName()]
	_, isDaemonSet := object.(*appsv1.DaemonSet)
	return isDaemonSet && exists &&
		live.Annotations[labels.TemplateDigest] == object.GetAnnotations()[labels.TemplateDigest]
}

// skipDependents skips the operands that need, anywhere in the cluster, an operand which could not be applied.
func (s *scope) skipDependents() {
	for _, step := range s.planned.Steps {
		for _, requirement := range step.Operand.Requires {
			if requirement.Scope == operand.Cluster && s.applied[requirement.On].Err != nil &&
				s.applied[step.Operand.Name].Err == nil {
				s.applied[step.Operand.Name] = status.ApplyResult{
					Err: fmt.Errorf("needs %s, %w: see the message of %[1]s in status.operands",
						requirement.On, status.ErrPrerequisite),
				}
			}
		}
		if errors.Is(s.applied[step.Operand.Name].Err, status.ErrPrerequisite) {
			delete(s.objects, step.Operand.Name)
		}
	}
}

// countPending counts the objects that a pass would write.
func (s *scope) countPending(ctx context.Context) {
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

// prune deletes the objects that are no longer rendered. An operand that could not be decided, rendered or applied
// keeps all of its objects.
func (s *scope) prune(ctx context.Context) {
	rendered := apply.Rendered{Kept: map[string]bool{}}
	for _, step := range s.planned.Steps {
		if step.Action == plan.Hold || step.KeepUnrendered || s.applied[step.Operand.Name].Err != nil {
			rendered.Kept[string(step.Operand.Name)] = true
		}
		for _, object := range s.objects[step.Operand.Name] {
			rendered.Add(object)
		}
	}
	if err := s.Applier.Prune(ctx, s.policy.UID, managedKinds(s.optionalKinds), rendered); err != nil {
		s.fail(fmt.Errorf("deleting objects that are no longer needed: %w", err))
	}
}

// liveDaemonSets returns the live DaemonSets of a step's operand, by name, with what rendering depends on. If a new one
// could get the name of the operand, the API server is read: a DaemonSet that is not in the cache yet, or pods that a
// deleted one has left, may still use the name.
func (s *scope) liveDaemonSets(ctx context.Context, step plan.Step) (map[string]rollout.Live, error) {
	o := &step.Operand
	live := rollout.LiveDaemonSets(o, s.snapshot.DaemonSets)
	if o.UpdatesOnDelete {
		if err := s.addLeftPods(ctx, live); err != nil {
			return nil, err
		}
	}
	readCtx, cancel := context.WithTimeout(ctx, s.Timing.Deadline)
	defer cancel()
	if !rollout.MayAssignBaseName(o, step.Instances, live) {
		return live, nil
	}
	ds, pod, err := observe.ExistingDaemonSetOrPod(readCtx, s.Live, s.Namespace, o.DaemonSet)
	switch {
	case ds != nil:
		live[o.DaemonSet] = rollout.LiveDaemonSet(ds)
	case pod != nil:
		live[o.DaemonSet] = rollout.LivePod(pod)
	}
	return live, err
}
