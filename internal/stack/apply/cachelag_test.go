package apply

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// untypedReader is a reader like mgr.GetAPIReader(): it leaves the TypeMeta of typed objects empty.
type untypedReader struct{ client.Reader }

func (b untypedReader) Get(
	ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption,
) error {
	err := b.Reader.Get(ctx, key, o, options...)
	o.GetObjectKind().SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(""))
	return err
}

func TestNoWriteWhileTheCacheMissesACreatedObject(t *testing.T) {
	server, cache := newCluster(t), newCluster(t)
	if _, err := applyOne(server.applier(), configMap("a")); err != nil {
		t.Fatal(err)
	}
	applier := New(cache, untypedReader{server}, clock.RealClock{}, DefaultTiming())
	wrote, err := applyOne(applier, configMap("a"))
	if err != nil || wrote || len(cache.applied) != 0 {
		t.Errorf("wrote %v, %v, %d calls", wrote, err, len(cache.applied))
	}
}
