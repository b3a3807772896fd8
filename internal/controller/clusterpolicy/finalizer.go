package clusterpolicy

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/kube/freshness"
)

// The finalizer keeps a deleted policy until its stack is removed. It is on the active policy, from before anything is
// applied for it.

// addedFinalizer is the version of a policy after the finalizer was added to it.
type addedFinalizer struct {
	policy  types.UID
	version string
}

// addFinalizer makes sure that the active policy has the finalizer, and reports whether objects may be applied for it.
func (s *scope) addFinalizer(ctx context.Context) bool {
	added := &s.addedFinalizer
	if observe.HasFinalizer(s.policy) ||
		added.policy == s.policy.UID && freshness.Stale(s.policy.ResourceVersion, added.version) {
		return true
	}
	policy := s.policy.DeepCopy()
	if err := s.Applier.SetFinalizer(ctx, policy, true); err != nil {
		s.noteDeleted(err)
		s.fail(err)
		return false
	}
	policy.ManagedFields = nil // As in the cache.
	s.policy, *added = policy, addedFinalizer{policy: policy.UID, version: policy.ResourceVersion}
	return true
}

// dropFinalizers removes the finalizer of the policies that are being deleted while another one is active: that one
// takes over their nodes, and the garbage collector deletes their objects.
func (s *scope) dropFinalizers(ctx context.Context) {
	for i := range s.all {
		if policy := &s.all[i]; policy.UID != s.policy.UID && policy.DeletionTimestamp != nil {
			s.fail(s.dropFinalizer(ctx, policy))
		}
	}
}

// dropFinalizer removes the finalizer of a policy, which may not exist any more.
func (s *scope) dropFinalizer(ctx context.Context, policy *v1.ClusterPolicy) error {
	return client.IgnoreNotFound(s.Applier.SetFinalizer(ctx, policy.DeepCopy(), false))
}
