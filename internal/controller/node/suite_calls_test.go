package node_test

import (
	"bytes"
	"context"
	"slices"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
)

// The calls that a reconcile makes.
const (
	getNode        = "get node"
	listNodes      = "list nodes"
	listPods       = "list pods"
	listLive       = "list pods without cache"
	patchLabels    = "patch labels"
	patchTaints    = "patch taints"
	patchCondition = "patch condition"
	createEvent    = "create event"
)

// call is one API call and the name of its object; empty for a list.
type call struct{ what, name string }

// calls records the calls of clients, and manipulates them.
type calls struct {
	mu   sync.Mutex
	made []call
	// failures are the errors that calls fail with until they are removed.
	failures map[string]error
	// before has functions that run once, before the next call of this kind.
	before map[string]func(context.Context) error
	// stale is returned by reads of a node instead of the stored one; nil for none.
	stale *corev1.Node
}

func newCalls() *calls {
	return &calls{failures: map[string]error{}, before: map[string]func(context.Context) error{}}
}

// record records a call, and returns the error that it is to fail with.
func (c *calls) record(ctx context.Context, what, name string) error {
	c.mu.Lock()
	c.made = append(c.made, call{what, name})
	before, failure := c.before[what], c.failures[what]
	delete(c.before, what)
	c.mu.Unlock()
	if before != nil {
		if err := before(ctx); err != nil {
			return err
		}
	}
	return failure
}

// fail makes calls of this kind fail with an error; nil ends that.
func (c *calls) fail(what string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failures[what] = err; err == nil {
		delete(c.failures, what)
	}
}

// beforeNext runs a function before the next call of this kind. If it returns an error, the call fails with it.
func (c *calls) beforeNext(what string, do func(context.Context) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.before[what] = do
}

// serveStale makes reads of the node return this one, like a cache that is behind; nil ends that.
func (c *calls) serveStale(node *corev1.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stale = node
}

// takeCalls returns the kinds of calls since it was last called, in order.
func (c *calls) takeCalls() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	kinds := []string{}
	for _, one := range c.made {
		kinds = append(kinds, one.what)
	}
	c.made = nil
	return kinds
}

// count returns how many calls of this kind concerned the object since calls were last taken.
func (c *calls) count(what, name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(slices.DeleteFunc(slices.Clone(c.made), func(one call) bool { return one != call{what, name} }))
}

// wrap returns a client whose calls are recorded. Lists of pods are recorded as podList, with the name of the selected
// node.
func (c *calls) wrap(base client.WithWatch, podList string) client.WithWatch {
	return interceptor.NewClient(base, interceptor.Funcs{
		Get: func(
			ctx context.Context, base client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption,
		) error {
			if err := c.record(ctx, getNode, key.Name); err != nil {
				return err
			}
			c.mu.Lock()
			stale := c.stale
			c.mu.Unlock()
			if node, isNode := object.(*corev1.Node); isNode && stale != nil {
				stale.DeepCopyInto(node)
				return nil
			}
			return base.Get(ctx, key, object, options...)
		},
		List: func(ctx context.Context, base client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			what, name := listNodes, ""
			if _, ofPods := list.(*corev1.PodList); ofPods {
				selected := client.ListOptions{}
				selected.ApplyOptions(options)
				name, _ = selected.FieldSelector.RequiresExactMatch(observe.PodNodeField)
				what = podList
			}
			if err := c.record(ctx, what, name); err != nil {
				return err
			}
			return base.List(ctx, list, options...)
		},
		Create: func(ctx context.Context, base client.WithWatch, object client.Object, options ...client.CreateOption) error {
			if err := c.record(ctx, createEvent, object.GetName()); err != nil {
				return err
			}
			return base.Create(ctx, object, options...)
		},
		Patch: func(
			ctx context.Context, base client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption,
		) error {
			what := patchLabels
			if body, err := patch.Data(object); err != nil {
				return err
			} else if bytes.Contains(body, []byte(`"taints"`)) {
				what = patchTaints
			}
			if err := c.record(ctx, what, object.GetName()); err != nil {
				return err
			}
			return base.Patch(ctx, object, patch, options...)
		},
		SubResourcePatch: func(
			ctx context.Context, base client.Client, sub string, object client.Object, patch client.Patch,
			options ...client.SubResourcePatchOption,
		) error {
			if err := c.record(ctx, patchCondition, object.GetName()); err != nil {
				return err
			}
			return base.SubResource(sub).Patch(ctx, object, patch, options...)
		},
	})
}

// newClient returns a client of the API server whose calls are not recorded.
func newClient() client.WithWatch {
	GinkgoHelper()
	direct, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	return direct
}
