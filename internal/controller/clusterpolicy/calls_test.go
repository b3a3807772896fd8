package clusterpolicy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// errInjected is the error of a call that a spec makes fail.
var errInjected = errors.New("injected by the spec")

// call is a call of the Reconciler: an operation such as "apply DaemonSet" or "live get ConfigMap", and the name of the
// object, empty for a list.
type call struct{ op, name string }

func (c call) String() string { return strings.TrimSpace(c.op + " " + c.name) }

// isWrite reports whether the call writes.
func (c call) isWrite() bool {
	verb, _, _ := strings.Cut(c.op, " ")
	return slices.Contains([]string{"apply", "create", "update", "patch", "delete"}, verb)
}

// callSet is a set of operations, safe for concurrent use.
type callSet struct {
	mu  sync.Mutex
	all map[string]bool
}

func (n *callSet) add(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.all == nil {
		n.all = map[string]bool{}
	}
	n.all[name] = true
}

// missing returns the operations of the other set that are not in this one.
func (n *callSet) missing(other *callSet) []string {
	var found []string
	for name := range other.all {
		if !n.all[name] {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return found
}

// allCalls and failedCalls are the operations of all specs of the suite.
var allCalls, failedCalls = &callSet{}, &callSet{}

// callRecorder records the calls of a Reconciler, and makes some of them fail.
type callRecorder struct {
	// server is a fake API server; nil for that of the suite, whose operations are recorded for all specs.
	server   client.WithWatch
	mu       sync.Mutex
	recorded []call
	handler  func(context.Context, call) error
}

// record records a call, and returns the error of the handler.
func (c *callRecorder) record(ctx context.Context, op, name string) error {
	current := call{op: op, name: name}
	if c.server == nil {
		allCalls.add(op)
	}
	c.mu.Lock()
	c.recorded = append(c.recorded, current)
	handler := c.handler
	c.mu.Unlock()
	if handler == nil {
		return nil
	}
	err := handler(ctx, current)
	if err != nil && c.server == nil {
		failedCalls.add(op)
	}
	return err
}

// onCall sets the handler of calls, nil for none. Calls for which it returns nil reach the API server.
func (c *callRecorder) onCall(handler func(context.Context, call) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.handler = handler
}

// failOnce makes the nth call of this operation fail, counted from now. failed returns that call.
func (c *callRecorder) failOnce(op string, nth int) (failed func() call) {
	var (
		mu    sync.Mutex
		seen  int
		found call
	)
	c.onCall(func(_ context.Context, c call) error {
		mu.Lock()
		defer mu.Unlock()
		if c.op != op {
			return nil
		}
		if seen++; seen != nth {
			return nil
		}
		found = c
		return errInjected
	})
	return func() call {
		mu.Lock()
		defer mu.Unlock()
		return found
	}
}

// takeCalls returns and discards the recorded calls.
func (c *callRecorder) takeCalls() []call {
	c.mu.Lock()
	defer c.mu.Unlock()
	current := c.recorded
	c.recorded = nil
	return current
}

// takeWrites discards the recorded calls and returns those that write, as strings.
func (c *callRecorder) takeWrites() []string {
	var found []string
	for _, recorded := range c.takeCalls() {
		if recorded.isWrite() {
			found = append(found, recorded.String())
		}
	}
	return found
}

// client returns a client whose reads are recorded with this prefix. If cached, it returns only the operator's own
// objects, as the manager's cache does.
func (c *callRecorder) client(reads string, cached bool) client.WithWatch {
	intercepted := interceptor.NewClient(cmp.Or(c.server, admin), c.interceptWrites())
	return interceptor.NewClient(intercepted, interceptor.Funcs{
		Get: func(
			ctx context.Context, next client.WithWatch, key client.ObjectKey, object client.Object,
			options ...client.GetOption,
		) error {
			kind := kindOf(object)
			if err := c.record(ctx, reads+" get "+kind, key.Name); err != nil {
				return err
			}
			err := next.Get(ctx, key, object, options...)
			if err == nil && cached && kind != "CustomResourceDefinition" &&
				object.GetLabels()[labels.ManagedBy] != labels.ManagedByValue {
				return apierrors.NewNotFound(schema.GroupResource{Resource: kind}, key.Name)
			}
			return err
		},
		List: func(
			ctx context.Context, next client.WithWatch, list client.ObjectList,
			options ...client.ListOption,
		) error {
			kind := kindOf(list)
			if err := c.record(ctx, reads+" list "+kind, ""); err != nil {
				return err
			}
			if cached && kind != "CustomResourceDefinition" && kind != "ClusterPolicy" {
				options = append(options, client.MatchingLabels{labels.ManagedBy: labels.ManagedByValue})
			}
			return next.List(ctx, list, options...)
		},
	})
}

// interceptWrites records all writes.
func (c *callRecorder) interceptWrites() interceptor.Funcs {
	return interceptor.Funcs{
		Create: func(
			ctx context.Context, next client.WithWatch, object client.Object,
			options ...client.CreateOption,
		) error {
			if err := c.record(ctx, "create "+kindOf(object), object.GetName()); err != nil {
				return err
			}
			return next.Create(ctx, object, options...)
		},
		Apply: func(
			ctx context.Context, next client.WithWatch, object runtime.ApplyConfiguration,
			options ...client.ApplyOption,
		) error {
			applied, is := object.(interface {
				client.Object
				runtime.ApplyConfiguration
			})
			if !is {
				return fmt.Errorf("%T is no object", object)
			}
			if err := c.record(ctx, "apply "+applied.GetObjectKind().GroupVersionKind().Kind, applied.GetName()); err != nil {
				return err
			}
			return next.Apply(ctx, object, options...)
		},
		Patch: func(
			ctx context.Context, next client.WithWatch, object client.Object, patch client.Patch,
			options ...client.PatchOption,
		) error {
			if err := c.record(ctx, "patch "+kindOf(object), object.GetName()); err != nil {
				return err
			}
			return next.Patch(ctx, object, patch, options...)
		},
		Delete: func(
			ctx context.Context, next client.WithWatch, object client.Object,
			options ...client.DeleteOption,
		) error {
			if err := c.record(ctx, "delete "+kindOf(object), object.GetName()); err != nil {
				return err
			}
			return next.Delete(ctx, object, options...)
		},
		SubResourcePatch: func(
			ctx context.Context, next client.Client, resource string, object client.Object, patch client.Patch,
			options ...client.SubResourcePatchOption,
		) error {
			if c.server != nil {
				if err := c.record(ctx, "patch "+resource+" "+kindOf(object), object.GetName()); err != nil {
					return err
				}
			}
			return next.SubResource(resource).Patch(ctx, object, patch, options...)
		},
		SubResourceUpdate: func(
			ctx context.Context, next client.Client, resource string, object client.Object,
			options ...client.SubResourceUpdateOption,
		) error {
			if err := c.record(ctx, "update "+resource+" "+kindOf(object), object.GetName()); err != nil {
				return err
			}
			return next.SubResource(resource).Update(ctx, object, options...)
		},
	}
}

// kindOf returns the kind of an object, or of the items of a list.
func kindOf(object runtime.Object) string {
	gvk, err := apiutil.GVKForObject(object, scheme)
	must(err)
	return strings.TrimSuffix(gvk.Kind, "List")
}

// recordingCache is a cache whose calls are recorded.
type recordingCache struct {
	cache.Cache
	calls *callRecorder
	reads string
}

func (t *recordingCache) Get(
	ctx context.Context,
	key client.ObjectKey,
	object client.Object,
	options ...client.GetOption,
) error {
	if err := t.calls.record(ctx, t.reads+" get "+kindOf(object), key.Name); err != nil {
		return err
	}
	return t.Cache.Get(ctx, key, object, options...)
}

func (t *recordingCache) GetInformer(
	ctx context.Context,
	object client.Object,
	options ...cache.InformerGetOption,
) (cache.Informer, error) {
	kind := object.GetObjectKind().GroupVersionKind().Kind
	if err := t.calls.record(ctx, "watch "+kind, ""); err != nil {
		return nil, err
	}
	informer, err := t.Cache.GetInformer(ctx, object, options...)
	return &recordingInformer{Informer: informer, calls: t.calls, kind: kind}, err
}

func (t *recordingCache) RemoveInformer(ctx context.Context, object client.Object) error {
	if err := t.calls.record(ctx, "unwatch "+object.GetObjectKind().GroupVersionKind().Kind, ""); err != nil {
		return err
	}
	return t.Cache.RemoveInformer(ctx, object)
}

type recordingInformer struct {
	cache.Informer
	calls *callRecorder
	kind  string
}

func (t *recordingInformer) AddEventHandler(
	handler toolscache.ResourceEventHandler,
) (toolscache.ResourceEventHandlerRegistration, error) {
	if err := t.calls.record(context.Background(), "handle "+t.kind, ""); err != nil {
		return nil, err
	}
	return t.Informer.AddEventHandler(handler)
}

// restMapper is a RESTMapper whose calls are recorded, if calls is set.
type restMapper struct {
	meta.RESTMapper
	calls *callRecorder
}

func (m *restMapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if m.calls != nil {
		if err := m.calls.record(context.Background(), "map "+kind.Kind, ""); err != nil {
			return nil, err
		}
	}
	return m.RESTMapper.RESTMapping(kind, versions...)
}
