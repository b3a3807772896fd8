package clusterpolicy

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterpolicy/gpu-operator/internal/assess"
	"github.com/clusterpolicy/gpu-operator/internal/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/observe"
	"github.com/clusterpolicy/gpu-operator/internal/status"
)

// A definition of ClusterPolicy that is older than the operator has the API server read policies without the fields that
// it lacks, and store them so with the next write, of the status too. A stack that follows such a spec is truncated, and
// the fields are gone for good. So nothing is changed, and no policy is written, unless the spec is surely whole.

// doubt is what passes keep of specs that are not surely whole.
type schemaGuard struct {
	// told are the policy and the definition for which it was last told that nothing is changed; empty where all goes on.
	reported string
	// spec of this policy differs from the one that was last applied since then, though nobody has edited it.
	policy  types.UID
	current observe.Applied
	since   time.Time
}

// isWhole reports whether the spec of the policy in force is what its owner wrote, as far as this operator knows its
// fields. One that was last applied as it is read now costs no call.
func (s *scope) specIsComplete(ctx context.Context) (bool, error) {
	readCtx, cancel := context.WithTimeout(ctx, s.Timing.Deadline)
	defer cancel()
	var err error
	if s.lastApplied, err = observe.LastApplied(readCtx, s.Client, s.Namespace, s.policy.UID); err != nil {
		return false, err
	}
	if s.current, err = observe.AppliedOf(s.policy); err != nil {
		return false, err
	}
	switch {
	case len(observe.OfSpec(s.missingFields)) > 0:
		return s.keepsAllFields()
	case s.current.Digest == s.lastApplied.Digest, s.policy.Spec.Paused != nil && *s.policy.Spec.Paused:
		// Of a policy that is paused nothing is applied.
		return true, nil
	}
	return s.confirmLive(readCtx)
}

// survives reports whether the spec has lost nothing to the definition, and loses nothing when the policy is written.
func (s *scope) keepsAllFields() (bool, error) {
	dropped, err := s.Schema.Drops(s.policy.Spec)
	s.droppedFields = dropped
	return err == nil && len(dropped) == 0 && s.current.Digest == s.lastApplied.Digest, err
}

// confirm reads the policies and their definition from the API server, as the spec is not the one that was last applied.
// The caches may show the definition as it was before it lacked fields, and a policy as it was read while it did: no event
// follows when the definition is renewed.
func (s *scope) confirmLive(ctx context.Context) (bool, error) {
	policy, all, err := observe.Policies(ctx, s.Live)
	if err != nil {
		return false, err
	}
	missing, err := s.Schema.LackingNow(ctx)
	if err != nil && !apierrors.IsForbidden(err) {
		return false, err
	}
	s.missingFields = missing
	if policy == nil || policy.UID != s.policy.UID {
		// Its event follows.
		return false, nil
	}
	for i := range all {
		all[i].ManagedFields = nil // The cache has none either.
	}
	s.policy, s.all = policy, all
	if s.current, err = observe.AppliedOf(policy); err != nil {
		return false, err
	}
	if len(observe.OfSpec(missing)) > 0 {
		return s.keepsAllFields()
	}
	return s.current.Digest == s.lastApplied.Digest || s.changeIsStable(), nil
}

// lasts reports whether a spec that was not applied yet was edited since then or, where only the definition has changed,
// has been like this for a while.
func (s *scope) changeIsStable() bool {
	if s.current.Generation != s.lastApplied.Generation {
		return true
	}
	if s.schemaGuard.policy != s.policy.UID || s.schemaGuard.current != s.current {
		s.schemaGuard.policy, s.schemaGuard.current, s.schemaGuard.since = s.policy.UID, s.current, s.now
	}
	left := s.Timing.SpecStabilization - s.now.Sub(s.schemaGuard.since)
	if left > 0 {
		s.requeueAfter(left)
	}
	return left <= 0
}

// freeze has all stay as it is: nodes are assessed by what was last decided, by which those that join are served, too.
// Where nothing was decided since the operator started, they keep what they have, and those that join are left alone.
func (s *scope) freeze(ctx context.Context) {
	previous, next := s.Fleet.Basis(), fleet.Basis{Kept: true}
	if previous != nil && previous.Decisions != nil && previous.Policy.UID == s.policy.UID {
		stack := assess.Stack{DaemonSets: s.snapshot.DaemonSets, CreateFailures: s.createFailures(ctx)}
		next = fleet.Basis{Policy: previous.Policy, Decisions: previous.Decisions, Stack: stack}
		s.planned = s.caches.compute(next.Decisions, s.caches.plan.optionalKinds, s.fleet)
	}
	s.basis = s.Fleet.Publish(next, s.now)
	if len(s.missingFields) == 0 {
		return
	}
	if key := fmt.Sprintf("%s %s", s.policy.UID, s.Schema.Version()); s.schemaGuard.reported != key {
		s.schemaGuard.reported = key
		message := status.Frozen(observe.OfSpec(s.missingFields), s.droppedFields, s.Namespace)
		log.FromContext(ctx).Info("Changing nothing", "policy", s.policy.Name, "reason", message, "decided", next.Decisions != nil)
		s.Status.Froze(ctx, s.policy, message, key)
	}
}

// thaw notes that all goes on.
func (s *scope) unfreeze(ctx context.Context) {
	if s.schemaGuard.reported != "" {
		log.FromContext(ctx).Info("Going on: the ClusterPolicy has all of its fields", "policy", s.policy.Name)
	}
	s.schemaGuard.reported = ""
	if s.current.Digest == s.lastApplied.Digest {
		s.schemaGuard = schemaGuard{}
	}
}
