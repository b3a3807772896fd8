package observe

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
)

// Orphans returns the names of the DaemonSets that run on without a policy, sorted: the last one was deleted, or is being
// deleted, with --cascade=orphan. policies are all that the cluster has, none of which is in force.
//
// The garbage collector takes the owner off the DaemonSets before it lets the policy go, but a cache may show the two the
// other way round. So where the cached DaemonSets still have an owner, the API server is asked; after a deletion that
// takes them along, they have one until they are gone.
func Orphans(ctx context.Context, cached, live client.Reader, namespace string, policies []v1.ClusterPolicy) ([]string, error) {
	known, err := DaemonSets(ctx, cached, namespace)
	if err != nil || len(known) == 0 {
		return nil, err
	}
	if slices.ContainsFunc(policies, orphansDependents) {
		return names(known, func(*appsv1.DaemonSet) bool { return true }), nil
	}
	if found := names(known, isOrphan); len(found) > 0 {
		return found, nil
	}
	left, err := DaemonSets(ctx, live, namespace)
	if err != nil {
		return nil, fmt.Errorf("asking whether a deleted ClusterPolicy has left DaemonSets: %w", err)
	}
	return names(left, isOrphan), nil
}

// orphansDependents reports whether a policy is being deleted with --cascade=orphan.
func orphansDependents(policy v1.ClusterPolicy) bool {
	return policy.DeletionTimestamp != nil && slices.Contains(policy.Finalizers, metav1.FinalizerOrphanDependents)
}

// isOrphan reports whether the operator has made a DaemonSet whose policy is gone, so that the next one adopts it.
func isOrphan(ds *appsv1.DaemonSet) bool {
	return ds.DeletionTimestamp == nil && metav1.GetControllerOf(ds) == nil && labels.IsApplied(ds)
}

func names(all map[string]*appsv1.DaemonSet, is func(*appsv1.DaemonSet) bool) []string {
	var found []string
	for name, ds := range all {
		if is(ds) {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return found
}
