package clusterpolicy

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/stack/apply"
	"github.com/clusterpolicy/gpu-operator/internal/stack/render"
	"github.com/clusterpolicy/gpu-operator/internal/status"
)

// remove is the pass of a deleted policy. The node controller takes the stack off the nodes, by what the basis says;
// when no node has anything left, the objects are deleted, and then the finalizer.
func (s *scope) remove(ctx context.Context) {
	orphaned, err := s.isOrphaned(ctx)
	switch {
	case err != nil:
		s.fail(err)
	case orphaned:
		s.Fleet.Publish(fleet.Basis{KeepNodes: true}, s.now)
		s.endRemoval(ctx)
	case s.removeFromNodes(ctx):
		if s.deleteStack(ctx) {
			s.endRemoval(ctx)
		}
	}
}

// isOrphaned reports whether the policy was deleted with --cascade=orphan, so that its stack stays. This is found
// before the removal begins: the garbage collector removes the owner of the objects before its own finalizer.
func (s *scope) isOrphaned(ctx context.Context) (bool, error) {
	if previous := s.Fleet.Basis(); previous != nil && previous.Removal != nil {
		return false, nil
	}
	readCtx, cancel := context.WithTimeout(ctx, s.Timing.Deadline)
	defer cancel()
	orphans, err := observe.Orphans(readCtx, s.Client, s.Live, s.Namespace, []v1.ClusterPolicy{*s.policy})
	return len(orphans) > 0, err
}

// removeFromNodes publishes the basis for the removal, applies the pods that clean up and removes those that would
// label nodes again. It reports whether no node has anything of the stack left.
func (s *scope) removeFromNodes(ctx context.Context) bool {
	var err error
	if s.snapshot, err = observe.ReadSnapshot(ctx, s.Client, s.Namespace); err != nil {
		s.fail(err)
		return false
	}
	input := s.specInput()
	if previous := s.Fleet.Basis(); previous == nil || previous.Removal == nil {
		s.Status.RecordRemoval(ctx, s.policy)
	}
	s.basis = s.Fleet.Publish(fleet.Basis{Policy: s.policy, Removal: &fleet.Removal{
		Force: *input.Spec.Removal.Force, RuntimeClass: input.RuntimeClass(),
	}}, s.now)
	if s.left, s.unseen = s.Fleet.Removing(); len(s.left) == 0 {
		return true
	}
	if len(s.left) > s.unseen {
		// Not for nodes that were not looked at: after a restart, what cleans up may have been deleted already.
		s.applyCleanup(ctx, input)
	}
	s.fail(s.pruneAll(ctx, s.keptWhileRemoving()))
	return false
}

// applyCleanup applies the objects that clean up hosts.
func (s *scope) applyCleanup(ctx context.Context, input operand.Input) {
	objects, err := render.Cleanup(s.Catalogue, input, render.Owner{Name: s.policy.Name, UID: string(s.policy.UID)})
	if err != nil {
		s.fail(err)
		return
	}
	rendered := make([]client.Object, 0, len(objects))
	for _, object := range objects {
		rendered = append(rendered, object)
	}
	for _, result := range s.Applier.ApplyAll(ctx, s.policy.UID, rendered) {
		s.fail(result.Err)
	}
}

// keptWhileRemoving returns the operands whose objects stay until no node has anything left: all but node discovery.
func (s *scope) keptWhileRemoving() apply.Rendered {
	kept := map[string]bool{labels.CleanupOperand: true}
	for _, ds := range s.snapshot.DaemonSets {
		kept[ds.Labels[labels.Operand]] = true
	}
	for i := range s.Catalogue {
		kept[string(s.Catalogue[i].Name)] = !s.Catalogue[i].Discovers
	}
	return apply.Rendered{Kept: kept}
}

// deleteStack deletes all objects that were applied for the policy, and reports whether they are gone.
func (s *scope) deleteStack(ctx context.Context) bool {
	slots := &corev1.ConfigMap{}
	err := s.Client.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: labels.UpgradeSlots}, slots)
	if err == nil {
		slots.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
		err = s.Applier.Delete(ctx, slots)
	}
	if err = client.IgnoreNotFound(err); err == nil {
		err = s.pruneAll(ctx, apply.Rendered{})
	}
	if err == nil {
		err = s.Applier.SetPodSecurity(ctx, s.Namespace, false)
	}
	if err != nil {
		s.fail(err)
		return false
	}
	for _, ds := range s.snapshot.DaemonSets {
		if metav1.IsControlledBy(ds, s.policy) {
			// Its deletion is an event.
			return false
		}
	}
	return true
}

// endRemoval removes the finalizer, so that the API server deletes the policy.
func (s *scope) endRemoval(ctx context.Context) {
	if err := s.dropFinalizer(ctx, s.policy); err != nil {
		s.fail(err)
		return
	}
	log.FromContext(ctx).Info("The stack of the deleted ClusterPolicy is removed", "policy", s.policy.Name)
	// The cache shows the policy for a moment.
	s.deletedPolicy = deletedPolicy{resourceVersion: s.policy.ResourceVersion, until: s.now.Add(s.Timing.RetryDeleted)}
	s.removed = true
}

// closeRemoval writes the status of a policy that is being removed, unless it has been.
func (s *scope) closeRemoval(ctx context.Context) (reconcile.Result, error) {
	s.requeueAfter(s.Applier.RetryAfter())
	computed := status.Removing(s.policy, status.Removal{
		Namespace: s.Namespace, Left: s.left, Err: s.err,
	})
	s.Meter.ObservePass(s.passMetrics(status.Input{}, computed, s.err))
	if s.removed || s.basis == nil && s.err == nil {
		return s.result()
	}
	if left := s.removalStatusDelay(); left > 0 {
		s.requeueAfter(left)
		return s.result()
	}
	s.noteDeleted(s.writeStatus(ctx, s.policy, computed))
	return s.result()
}

// removalStatusDelay returns how long the status still waits until all nodes have been looked at.
func (s *scope) removalStatusDelay() time.Duration {
	if s.unseen == 0 || s.err != nil {
		return 0
	}
	return s.Timing.StatusDelay - s.now.Sub(s.basis.Since)
}

// pruneAll deletes the objects that are not to stay, of all kinds that the cluster serves.
func (s *scope) pruneAll(ctx context.Context, stay apply.Rendered) error {
	kinds, err := s.OptionalKinds.Follow(ctx, s.snapshot.CRDs)
	if err == nil {
		err = s.Applier.Prune(ctx, s.policy.UID, managedKinds(kinds), stay)
	}
	if err != nil {
		return fmt.Errorf("deleting the objects of the deleted ClusterPolicy: %w", err)
	}
	return nil
}
