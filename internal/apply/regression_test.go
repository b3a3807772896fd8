package apply

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// bare is a reader like mgr.GetAPIReader(): it leaves kind and version of typed objects empty.
type bare struct{ client.Reader }

func (b bare) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	err := b.Reader.Get(ctx, key, o, options...)
	o.GetObjectKind().SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(""))
	return err
}

func TestApplyWritesNothingWhereTheCacheLagsBehindACreation(t *testing.T) {
	server, cache := newCluster(t), newCluster(t)
	if _, err := roundOf(server.applier(), configMap("a")); err != nil {
		t.Fatal(err)
	}
	applier := New(cache, bare{server}, clock.RealClock{}, DefaultTiming())
	wrote, err := roundOf(applier, configMap("a"))
	if err != nil || wrote || len(cache.applied) != 0 {
		t.Errorf("wrote %v, %v, %d calls", wrote, err, len(cache.applied))
	}
}
