package observe_test

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// Orphaned DaemonSets are distinguished from those that are deleted with their policy.
func TestOrphans(t *testing.T) {
	daemonSet := func(change func(*appsv1.DaemonSet)) *appsv1.DaemonSet {
		ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{
			Namespace: "gpu-operator", Name: "driver",
			Labels:      map[string]string{labels.ManagedBy: labels.ManagedByValue, labels.Operand: "driver"},
			Annotations: map[string]string{labels.Digest: "1"},
		}}
		change(ds)
		return ds
	}
	orphan := daemonSet(func(*appsv1.DaemonSet) {})
	owned := daemonSet(func(ds *appsv1.DaemonSet) {
		ds.OwnerReferences = []metav1.OwnerReference{{Kind: "ClusterPolicy", Name: "policy", UID: "1", Controller: new(true)}}
	})
	deleting := daemonSet(func(ds *appsv1.DaemonSet) {
		ds.DeletionTimestamp, ds.Finalizers = new(metav1.Now()), []string{"example.com/x"}
	})
	notApplied := daemonSet(func(ds *appsv1.DaemonSet) { ds.Annotations = nil })
	deleted := func(finalizer string) []v1.ClusterPolicy {
		return []v1.ClusterPolicy{
			{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: new(metav1.Now()), Finalizers: []string{finalizer}}},
		}
	}
	for name, test := range map[string]struct {
		cached, live *appsv1.DaemonSet
		policies     []v1.ClusterPolicy
		want         bool
		readsLive    bool
	}{
		"no DaemonSets": {},
		"orphaned":      {cached: orphan, want: true},
		"the policy is being deleted with orphan": {
			cached:   owned,
			policies: deleted(metav1.FinalizerOrphanDependents),
			want:     true,
		},
		"the policy is being deleted with its dependents": {
			cached:    owned,
			live:      owned,
			policies:  deleted(metav1.FinalizerDeleteDependents),
			readsLive: true,
		},
		"the policy is deleted, the DaemonSets not yet": {cached: owned, live: owned, readsLive: true},
		"the policy and the DaemonSets are deleted":     {cached: owned, readsLive: true},
		"the cache is stale":                            {cached: owned, live: orphan, want: true, readsLive: true},
		"deleted by a user":                             {cached: deleting, live: deleting, readsLive: true},
		"not applied by the operator":                   {cached: notApplied, live: notApplied, readsLive: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			readsLive := false
			cached, live := fake.NewClientBuilder(), fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
					readsLive = true
					return c.List(ctx, list, options...)
				},
			})
			if test.cached != nil {
				cached.WithObjects(test.cached)
			}
			if test.live != nil {
				live.WithObjects(test.live)
			}
			found, err := observe.Orphans(t.Context(), cached.Build(), live.Build(), "gpu-operator", test.policies)
			g.Expect(err).NotTo(HaveOccurred())
			if test.want {
				g.Expect(found).To(Equal([]string{"driver"}))
			} else {
				g.Expect(found).To(BeEmpty())
			}
			g.Expect(readsLive).To(Equal(test.readsLive))
		})
	}
	t.Run("the API server fails", func(t *testing.T) {
		g := NewWithT(t)
		refused := errors.New("refused")
		live := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return refused },
		}).Build()
		_, err := observe.Orphans(t.Context(), fake.NewClientBuilder().WithObjects(owned).Build(), live, "gpu-operator", nil)
		g.Expect(err).To(MatchError(refused))
	})
}
