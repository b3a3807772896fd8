package observe

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// Orphans returns the names of the DaemonSets that keep running without a policy, sorted, because the last policy was
// deleted, or is being deleted, with --cascade=orphan. policies are all that the cluster has; none of them is active.
//
// The garbage collector removes the owner reference from the DaemonSets before it deletes the policy, but a cache may
// show this in the reverse order. So if the cached DaemonSets still have an owner, they are read from the API server.
// With other deletions they keep the owner reference until they are deleted.
func Orphans(
	ctx context.Context, cached, live client.Reader, namespace string, policies []v1.ClusterPolicy,
) ([]string, error) {
	daemonSets, err := DaemonSets(ctx, cached, namespace)
	if err != nil || len(daemonSets) == 0 {
		return nil, err
	}
	if slices.ContainsFunc(policies, orphansDependents) {
		return names(daemonSets, func(*appsv1.DaemonSet) bool { return true }), nil
	}
	if found := names(daemonSets, isOrphan); len(found) > 0 {
		return found, nil
	}
	current, err := DaemonSets(ctx, live, namespace)
	if err != nil {
		return nil, fmt.Errorf("listing DaemonSets that a deleted ClusterPolicy may have orphaned: %w", err)
	}
	return names(current, isOrphan), nil
}

// orphansDependents reports whether a policy is being deleted with --cascade=orphan.
func orphansDependents(policy v1.ClusterPolicy) bool {
	return policy.DeletionTimestamp != nil && slices.Contains(policy.Finalizers, metav1.FinalizerOrphanDependents)
}

// isOrphan reports whether the operator has applied the DaemonSet and its policy no longer exists, so that the next
// policy adopts it.
func isOrphan(ds *appsv1.DaemonSet) bool {
	return ds.DeletionTimestamp == nil && metav1.GetControllerOf(ds) == nil && labels.IsApplied(ds)
}

func names(all map[string]*appsv1.DaemonSet, matches func(*appsv1.DaemonSet) bool) []string {
	var found []string
	for name, ds := range all {
		if matches(ds) {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return found
}
