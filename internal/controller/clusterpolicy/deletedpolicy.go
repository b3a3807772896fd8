package clusterpolicy

import (
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// vanished is a version of a policy that the API server does not have, though the cache does: the cache is behind, as where
// the operator has started while an API server was. What a pass applies in its name is removed again by the garbage
// collector, again and again.
type deletedPolicy struct {
	resourceVersion string
	until           time.Time
}

// noteVanished notes whether the write of the status, which returned err, found no policy.
func (s *scope) noteDeleted(err error) {
	if apierrors.IsNotFound(err) {
		s.deletedPolicy = deletedPolicy{resourceVersion: s.policy.ResourceVersion, until: s.now.Add(s.Timing.RetryDeleted)}
	}
}

// hasVanished reports whether the policy is one that the API server did not have a moment ago, and has the pass made again
// once that is to be asked anew: another version in the cache begins a pass by itself.
func (s *scope) policyIsDeleted() bool {
	left := s.deletedPolicy.until.Sub(s.now)
	if s.deletedPolicy.resourceVersion != s.policy.ResourceVersion || left <= 0 {
		return false
	}
	s.requeueAfter(left)
	return true
}
