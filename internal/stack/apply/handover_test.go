package apply

import (
	"context"
	"errors"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

var errFailsOnce = errors.New("fails once")

// orphaner is an API server with DaemonSets. It fails the call with this number, and counts the DaemonSets that were
// not being deleted when the pods of another one were taken from it.
type orphaner struct {
	client.WithWatch
	failAt, calls, active int
	orphaned              map[string]bool
}

func newOrphaner(failAt int, names ...string) *orphaner {
	o := &orphaner{failAt: failAt, orphaned: map[string]bool{}}
	builder := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(
			ctx context.Context, w client.WithWatch, object client.Object, p client.Patch, options ...client.PatchOption,
		) error {
			if err := o.call(); err != nil {
				return err
			}
			return w.Patch(ctx, object, p, options...)
		},
		Delete: func(ctx context.Context, w client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			if err := o.call(); err != nil {
				return err
			}
			policy := (&client.DeleteOptions{}).ApplyOptions(options).PropagationPolicy
			if *policy == metav1.DeletePropagationOrphan {
				o.orphaned[object.GetName()] = true
				for _, ds := range o.list(ctx) {
					if ds.DeletionTimestamp == nil && ds.Name != object.GetName() {
						o.active++
					}
				}
			}
			return w.Delete(ctx, object, options...)
		},
	})
	for _, name := range names {
		builder.WithObjects(&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "gpu-operator", Name: name}})
	}
	o.WithWatch = builder.Build()
	return o
}

func (o *orphaner) call() error {
	if o.calls++; o.calls == o.failAt {
		return errFailsOnce
	}
	return nil
}

func (o *orphaner) list(ctx context.Context) []*appsv1.DaemonSet {
	list := &appsv1.DaemonSetList{}
	if err := o.List(ctx, list); err != nil {
		panic(err)
	}
	var found []*appsv1.DaemonSet
	for i := range list.Items {
		found = append(found, &list.Items[i])
	}
	return found
}

// No pods are taken from a DaemonSet while another one is active, whichever call fails, and in the end all are gone.
func TestOrphan(t *testing.T) {
	for name, names := range map[string][]string{"one": {"a"}, "several": {"a", "b", "c"}} {
		t.Run(name, func(t *testing.T) {
			for failAt := 0; ; failAt++ {
				server := newOrphaner(failAt, names...)
				applier := New(server, server, clock.RealClock{}, Timing{Deadline: time.Minute})
				first := applier.Orphan(t.Context(), server.list(t.Context()))
				if failed := 0 < failAt && failAt <= server.calls; failed != errors.Is(first, errFailsOnce) {
					t.Errorf("call %d fails: %v", failAt, first)
				}
				if err := applier.Orphan(t.Context(), server.list(t.Context())); err != nil {
					t.Fatalf("after call %d failed: %v", failAt, err)
				}
				if left := server.list(t.Context()); len(left) > 0 || server.active > 0 ||
					len(server.orphaned) != len(names) {
					t.Errorf("call %d fails: %d left, %d were active, orphaned %v", failAt, len(left), server.active,
						server.orphaned)
				}
				if failAt > server.calls {
					return
				}
			}
		})
	}
}
