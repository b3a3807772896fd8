package clusterpolicy

import (
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// deletedPolicy is a version of a policy that is in the cache, but no longer in the API server: the cache is stale, for
// example because the operator listed from an API server that was behind. The garbage collector would delete whatever a
// pass applies for such a policy, so passes do nothing until the given time.
type deletedPolicy struct {
	resourceVersion string
	until           time.Time
}

// noteDeleted records that the policy does not exist if err, of the write of its status, is NotFound.
func (s *scope) noteDeleted(err error) {
	if apierrors.IsNotFound(err) {
		s.deletedPolicy = deletedPolicy{resourceVersion: s.policy.ResourceVersion, until: s.now.Add(s.Timing.RetryDeleted)}
	}
}

// deletedFor returns how long the policy still counts as deleted, because the API server recently had no such policy; 0
// if it does not. Another version in the cache is an event, and starts a pass without waiting.
func (s *scope) deletedFor() time.Duration {
	if s.deletedPolicy.resourceVersion != s.policy.ResourceVersion {
		return 0
	}
	return max(0, s.deletedPolicy.until.Sub(s.now))
}
