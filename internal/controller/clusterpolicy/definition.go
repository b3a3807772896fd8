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
type doubt struct {
	// told are the policy and the definition for which it was last told that nothing is changed; empty where all goes on.
	told string
	// spec of this policy differs from the one that was last applied since then, though nobody has edited it.
	policy types.UID
	spec   observe.Applied
	since  time.Time
}

// isWhole reports whether the spec of the policy in force is what its owner wrote, as far as this operator knows its
// fields. One that was last applied as it is read now costs no call.
func (s *scope) isWhole(ctx context.Context) (bool, error) {
	reading, cancel := context.WithTimeout(ctx, s.Timing.Deadline)
	defer cancel()
	var err error
	if s.recorded, err = observe.LastApplied(reading, s.Client, s.Namespace, s.policy.UID); err != nil {
		return false, err
	}
	if s.read, err = observe.AppliedOf(s.policy); err != nil {
		return false, err
	}
	switch {
	case len(observe.SpecFields(s.missingFields)) > 0:
		return s.survives()
	case s.read.Digest == s.recorded.Digest, s.policy.Spec.Paused != nil && *s.policy.Spec.Paused:
		// Of a policy that is paused nothing is applied.
		return true, nil
	}
	return s.confirm(reading)
}

// survives reports whether the spec has lost nothing to the definition, and loses nothing when the policy is written.
func (s *scope) survives() (bool, error) {
	dropped, err := s.Schema.DroppedFields(s.policy.Spec)
	s.dropped = dropped
	return err == nil && len(dropped) == 0 && s.read.Digest == s.recorded.Digest, err
}

// confirm reads the policies and their definition from the API server, as the spec is not the one that was last applied.
// The caches may show the definition as it was before it lacked fields, and a policy as it was read while it did: no event
// follows when the definition is renewed.
func (s *scope) confirm(ctx context.Context) (bool, error) {
	policy, all, err := observe.Policies(ctx, s.Live)
	if err != nil {
		return false, err
	}
	missing, err := s.Schema.MissingFieldsLive(ctx)
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
	if s.read, err = observe.AppliedOf(policy); err != nil {
		return false, err
	}
	if len(observe.SpecFields(missing)) > 0 {
		return s.survives()
	}
	return s.read.Digest == s.recorded.Digest || s.lasts(), nil
}

// lasts reports whether a spec that was not applied yet was edited since then or, where only the definition has changed,
// has been like this for a while.
func (s *scope) lasts() bool {
	if s.read.Generation != s.recorded.Generation {
		return true
	}
	if s.doubt.policy != s.policy.UID || s.doubt.spec != s.read {
		s.doubt.policy, s.doubt.spec, s.doubt.since = s.policy.UID, s.read, s.now
	}
	left := s.Timing.Doubt - s.now.Sub(s.doubt.since)
	if left > 0 {
		s.sooner(left)
	}
	return left <= 0
}

// freeze has all stay as it is: nodes are assessed by what was last decided, by which those that join are served, too.
// Where nothing was decided since the operator started, they keep what they have, and those that join are left alone.
func (s *scope) freeze(ctx context.Context) {
	before, next := s.Fleet.Basis(), fleet.Basis{KeepNodes: true}
	if before != nil && before.Decisions != nil && before.Policy.UID == s.policy.UID {
		stack := assess.Stack{DaemonSets: s.snapshot.DaemonSets, CreateFailures: s.createFailures(ctx)}
		next = fleet.Basis{Policy: before.Policy, Decisions: before.Decisions, Stack: stack}
		s.planned = s.drafts.compute(next.Decisions, s.drafts.plan.optional, s.fleet)
	}
	s.basis = s.Fleet.Publish(next, s.now)
	if len(s.missingFields) == 0 {
		return
	}
	if now := fmt.Sprintf("%s %s", s.policy.UID, s.Schema.Version()); s.doubt.told != now {
		s.doubt.told = now
		message := status.Frozen(observe.SpecFields(s.missingFields), s.dropped, s.Namespace)
		log.FromContext(ctx).Info("Changing nothing", "policy", s.policy.Name, "reason", message, "decided", next.Decisions != nil)
		s.Status.Froze(ctx, s.policy, message, now)
	}
}

// thaw notes that all goes on.
func (s *scope) thaw(ctx context.Context) {
	if s.doubt.told != "" {
		log.FromContext(ctx).Info("Going on: the ClusterPolicy has all of its fields", "policy", s.policy.Name)
	}
	s.doubt.told = ""
	if s.read.Digest == s.recorded.Digest {
		s.doubt = doubt{}
	}
}
