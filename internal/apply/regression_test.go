package apply

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/freshness"
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
	if _, err := server.applier().Apply(context.Background(), policy, configMap("a")); err != nil {
		t.Fatal(err)
	}
	applier := &Applier{Client: cache, Live: bare{server}, Seen: freshness.NewTracker()}
	wrote, err := applier.Apply(context.Background(), policy, configMap("a"))
	if err != nil || wrote || len(cache.applied) != 0 {
		t.Errorf("wrote %v, %v, %d calls", wrote, err, len(cache.applied))
	}
}
