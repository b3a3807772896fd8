package clusterpolicy

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/status/conditions"
)

// If the ClusterPolicy CRD is older than the operator, the API server drops the fields that the CRD does not define:
// from every policy that is read, and for good with the next write, including one of the status. So a pass neither
// applies a spec nor writes a policy unless the spec is complete.

// schemaGuard has what passes remember about a spec that may be truncated.
type schemaGuard struct {
	// reported identifies the policy and the CRD of the last report that passes are frozen; empty while they are not.
	reported string
	// current, a spec of this policy, differs from the last applied one since this time, with the same generation.
	policy  types.UID
	current observe.SpecID
	since   time.Time
}

// confirmSpec takes the spec of the active policy, from the API server if it may have changed, and reports whether it
// has all fields that the user has set. A spec that equals the last applied one needs no call.
func (s *scope) confirmSpec(ctx context.Context) (bool, error) {
	readCtx, cancel := context.WithTimeout(ctx, s.Timing.Deadline)
	defer cancel()
	var err error
	if s.lastApplied, err = observe.LastAppliedSpec(readCtx, s.Client, s.Namespace, s.policy.UID); err != nil {
		return false, err
	}
	if s.current, err = observe.SpecIDOf(s.policy); err != nil {
		return false, err
	}
	switch {
	case len(observe.SpecFields(s.missingFields)) > 0:
		return s.findDroppedFields()
	case s.current.Digest == s.lastApplied.Digest, s.policy.Spec.Paused != nil && *s.policy.Spec.Paused:
		// A paused policy is not applied.
		return true, nil
	}
	return s.adoptLive(readCtx)
}

// findDroppedFields finds the fields of the spec that a write of the policy would lose. It reports whether there are
// none, and the CRD has dropped none before.
func (s *scope) findDroppedFields() (bool, error) {
	dropped, err := s.Schema.DroppedFields(s.policy.Spec)
	s.droppedFields = dropped
	return err == nil && len(dropped) == 0 && s.current.Digest == s.lastApplied.Digest, err
}

// adoptLive decides about a spec that differs from the last applied one. It reads the policies and the CRD from the
// API server: the cache may have an earlier CRD, or a policy from the time when fields were missing, as no event
// follows for policies when the CRD is updated.
func (s *scope) adoptLive(ctx context.Context) (bool, error) {
	policy, all, err := observe.Policies(ctx, s.Live)
	if err != nil {
		return false, err
	}
	missing, err := s.Schema.MissingFieldsLive(ctx)
	if err != nil && !apierrors.IsForbidden(err) {
		return false, err
	}
	s.missingFields = missing
	if policy == nil || policy.UID != s.policy.UID || policy.Annotations[labels.Undecodable] != "" {
		// An event of the policy follows.
		return false, nil
	}
	for i := range all {
		all[i].ManagedFields = nil // As in the cache.
	}
	s.policy, s.all = policy, all
	if s.current, err = observe.SpecIDOf(policy); err != nil {
		return false, err
	}
	if len(observe.SpecFields(missing)) > 0 {
		return s.findDroppedFields()
	}
	if s.current.Digest == s.lastApplied.Digest || s.current.Generation != s.lastApplied.Generation {
		// It is the last applied one, or was edited.
		return true, nil
	}
	s.noteChange()
	left := s.Timing.SpecStabilization - s.now.Sub(s.schemaGuard.since)
	s.requeueAfter(max(0, left))
	return left <= 0, nil
}

// noteChange remembers since when the spec differs from the last applied one without having been edited.
func (s *scope) noteChange() {
	if s.schemaGuard.policy != s.policy.UID || s.schemaGuard.current != s.current {
		s.schemaGuard.policy, s.schemaGuard.current, s.schemaGuard.since = s.policy.UID, s.current, s.now
	}
}

// keepDecisions publishes the last decisions again, so that nodes, including new ones, are assessed and served by them.
// If this process has made none yet, nodes keep their labels, and new nodes get none.
func (s *scope) keepDecisions(ctx context.Context) {
	previous, next := s.Fleet.Basis(), fleet.Basis{KeepNodes: true}
	if previous != nil && previous.Decisions != nil && previous.Policy.UID == s.policy.UID {
		next = fleet.Basis{Policy: previous.Policy, Decisions: previous.Decisions, Stack: s.refreshStack(ctx)}
		s.planned = s.caches.compute(next.Decisions, s.caches.plan.optionalKinds, s.view, s.snapshot.DaemonSets)
	}
	s.basis = s.Fleet.Publish(next, s.now)
}

// freeze keeps the last decisions, and reports that the definition lacks fields.
func (s *scope) freeze(ctx context.Context) {
	s.keepDecisions(ctx)
	if len(s.missingFields) == 0 {
		return
	}
	if key := fmt.Sprintf("%s %s", s.policy.UID, s.Schema.Version()); s.schemaGuard.reported != key {
		s.schemaGuard.reported = key
		message := conditions.FrozenMessage(observe.SpecFields(s.missingFields), s.droppedFields, s.Namespace)
		log.FromContext(ctx).Info("Frozen: applying no change of the ClusterPolicy", "policy", s.policy.Name,
			"reason", message, "decided", s.basis.Decisions != nil)
		s.Status.RecordFrozen(ctx, s.policy, v1.ReasonCRDOutdated, message, key)
	}
}

// unfreeze ends the freeze, and logs it if it was reported.
func (s *scope) unfreeze(ctx context.Context) {
	if s.schemaGuard.reported != "" {
		log.FromContext(ctx).Info("No longer frozen: the ClusterPolicy has all of its fields", "policy", s.policy.Name)
	}
	s.schemaGuard.reported = ""
	if s.current.Digest == s.lastApplied.Digest {
		s.schemaGuard = schemaGuard{}
	}
}
