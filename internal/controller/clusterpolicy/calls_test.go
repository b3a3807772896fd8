package clusterpolicy

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
)

// errRefused is the answer to a call that a spec has fail.
var errRefused = errors.New("refused by the spec")

// call is one that the Reconciler makes: what it is, such as "apply DaemonSet" or "live get ConfigMap", and the name of
// the object, empty for a list.
type call struct{ what, name string }

func (c call) String() string { return strings.TrimSpace(c.what + " " + c.name) }

// isWrite reports whether the call changes something in the cluster.
func (c call) isWrite() bool {
	verb, _, _ := strings.Cut(c.what, " ")
	return slices.Contains([]string{"apply", "create", "update", "patch", "delete"}, verb)
}

// names is a set of what calls are, safe for use by several goroutines.
type names struct {
	mu  sync.Mutex
	all map[string]bool
}

func (n *names) add(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.all == nil {
		n.all = map[string]bool{}
	}
	n.all[name] = true
}

// missing are those of the other set that are not in this one.
func (n *names) missing(other *names) []string {
	var found []string
	for name := range other.all {
		if !n.all[name] {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return found
}

// everMade and everFailed are what all specs of the suite have seen.
var everMade, everFailed = &names{}, &names{}

// calls records the calls of a Reconciler, and has some fail.
type calls struct {
	mu     sync.Mutex
	made   []call
	answer func(context.Context, call) error
}

// begin records a call, and returns an error if it is to fail.
func (c *calls) begin(ctx context.Context, what, name string) error {
	made := call{what: what, name: name}
	everMade.add(what)
	c.mu.Lock()
	c.made = append(c.made, made)
	answer := c.answer
	c.mu.Unlock()
	if answer == nil {
		return nil
	}
	err := answer(ctx, made)
	if err != nil {
		everFailed.add(what)
	}
	return err
}

// answers has calls be answered by the function; those for which it returns nil reach the API server.
func (c *calls) answers(answer func(context.Context, call) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer = answer
}

// failOnce has one call fail, the nth of those from now on. failed returns the call once it was made.
func (c *calls) failOnce(what string, nth int) (failed func() call) {
	var (
		mu    sync.Mutex
		seen  int
		found call
	)
	c.answers(func(_ context.Context, made call) error {
		mu.Lock()
		defer mu.Unlock()
		if made.what != what {
			return nil
		}
		if seen++; seen != nth {
			return nil
		}
		found = made
		return errRefused
	})
	return func() call {
		mu.Lock()
		defer mu.Unlock()
		return found
	}
}

// taken returns the calls since it was last called.
func (c *calls) taken() []call {
	c.mu.Lock()
	defer c.mu.Unlock()
	made := c.made
	c.made = nil
	return made
}

// writes returns the calls since taken or writes was last called that write, as texts.
func (c *calls) writes() []string {
	var found []string
	for _, made := range c.taken() {
		if made.isWrite() {
			found = append(found, made.String())
		}
	}
	return found
}

// client returns one whose reads have this prefix. One that is cached shows the operator's own objects alone, as the
// manager's cache does.
func (c *calls) client(reads string, cached bool) client.WithWatch {
	intercepted := interceptor.NewClient(admin, c.interceptWrites())
	return interceptor.NewClient(intercepted, interceptor.Funcs{
		Get: func(ctx context.Context, next client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			kind := kindOf(object)
			if err := c.begin(ctx, reads+" get "+kind, key.Name); err != nil {
				return err
			}
			err := next.Get(ctx, key, object, options...)
			if err == nil && cached && kind != "CustomResourceDefinition" && object.GetLabels()[labels.ManagedBy] != labels.ManagedByValue {
				return apierrors.NewNotFound(schema.GroupResource{Resource: kind}, key.Name)
			}
			return err
		},
		List: func(ctx context.Context, next client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			kind := kindOf(list)
			if err := c.begin(ctx, reads+" list "+kind, ""); err != nil {
				return err
			}
			if cached && kind != "CustomResourceDefinition" && kind != "ClusterPolicy" {
				options = append(options, client.MatchingLabels{labels.ManagedBy: labels.ManagedByValue})
			}
			return next.List(ctx, list, options...)
		},
	})
}

// interceptWrites has all writes be recorded, and fail where they are to.
func (c *calls) interceptWrites() interceptor.Funcs {
	return interceptor.Funcs{
		Create: func(ctx context.Context, next client.WithWatch, object client.Object, options ...client.CreateOption) error {
			if err := c.begin(ctx, "create "+kindOf(object), object.GetName()); err != nil {
				return err
			}
			return next.Create(ctx, object, options...)
		},
		Apply: func(ctx context.Context, next client.WithWatch, object runtime.ApplyConfiguration, options ...client.ApplyOption) error {
			applied, is := object.(interface {
				client.Object
				runtime.ApplyConfiguration
			})
			Expect(is).To(BeTrue(), "%T", object)
			if err := c.begin(ctx, "apply "+applied.GetObjectKind().GroupVersionKind().Kind, applied.GetName()); err != nil {
				return err
			}
			return next.Apply(ctx, object, options...)
		},
		Patch: func(ctx context.Context, next client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			if err := c.begin(ctx, "patch "+kindOf(object), object.GetName()); err != nil {
				return err
			}
			return next.Patch(ctx, object, patch, options...)
		},
		Delete: func(ctx context.Context, next client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			if err := c.begin(ctx, "delete "+kindOf(object), object.GetName()); err != nil {
				return err
			}
			return next.Delete(ctx, object, options...)
		},
		SubResourceUpdate: func(ctx context.Context, next client.Client, resource string, object client.Object, options ...client.SubResourceUpdateOption) error {
			if err := c.begin(ctx, "update "+resource+" "+kindOf(object), object.GetName()); err != nil {
				return err
			}
			return next.SubResource(resource).Update(ctx, object, options...)
		},
	}
}

// kindOf is the kind of an object, or of the objects in a list.
func kindOf(object runtime.Object) string {
	gvk, err := apiutil.GVKForObject(object, scheme)
	Expect(err).NotTo(HaveOccurred())
	return strings.TrimSuffix(gvk.Kind, "List")
}

// tappedCache is a cache whose calls are recorded and may fail.
type tappedCache struct {
	cache.Cache
	calls *calls
	reads string
}

func (t *tappedCache) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if err := t.calls.begin(ctx, t.reads+" get "+kindOf(object), key.Name); err != nil {
		return err
	}
	return t.Cache.Get(ctx, key, object, options...)
}

func (t *tappedCache) GetInformer(ctx context.Context, object client.Object, options ...cache.InformerGetOption) (cache.Informer, error) {
	kind := object.GetObjectKind().GroupVersionKind().Kind
	if err := t.calls.begin(ctx, "watch "+kind, ""); err != nil {
		return nil, err
	}
	informer, err := t.Cache.GetInformer(ctx, object, options...)
	return &tappedInformer{Informer: informer, calls: t.calls, kind: kind}, err
}

func (t *tappedCache) RemoveInformer(ctx context.Context, object client.Object) error {
	if err := t.calls.begin(ctx, "unwatch "+object.GetObjectKind().GroupVersionKind().Kind, ""); err != nil {
		return err
	}
	return t.Cache.RemoveInformer(ctx, object)
}

type tappedInformer struct {
	cache.Informer
	calls *calls
	kind  string
}

func (t *tappedInformer) AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	if err := t.calls.begin(context.Background(), "handle "+t.kind, ""); err != nil {
		return nil, err
	}
	return t.Informer.AddEventHandler(handler)
}

// restMapper is one whose calls may fail; it has no calls where none are recorded.
type restMapper struct {
	meta.RESTMapper
	calls *calls
}

func (m *restMapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if m.calls != nil {
		if err := m.calls.begin(context.Background(), "map "+kind.Kind, ""); err != nil {
			return nil, err
		}
	}
	return m.RESTMapper.RESTMapping(kind, versions...)
}
