package upgrade_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// The calls that change something, and the reads without a cache.
const (
	patchNode       = "patch node"
	createSlots     = "create slots"
	patchSlots      = "patch slots"
	deleteSlots     = "delete slots"
	createPull      = "create pull pod"
	deletePull      = "delete pull pod"
	deleteDriver    = "delete driver pod"
	deleteValidator = "delete validator pod"
	evictPod        = "evict pod"
	createEvent     = "create event"
	readSlots       = "read slots"
	readPods        = "read pods"
	readClaim       = "read claim"
	// listPods is the read of the operator's pods on a node, from the cache.
	listPods = "list pods"
)

// errCrash is what all calls of a manager return that has crashed.
var errCrash = errors.New("the manager has crashed")

// calls records the calls of one manager, and lets some fail.
type calls struct {
	mu sync.Mutex
	// made are the writes in order, without Events.
	made []string
	// podReads is the number of reads of pods without a cache, and reads that of lists from the cache and of the slots.
	podReads, reads int
	// events is the number of Events.
	events int
	// failures are the errors that the next call of a kind fails with.
	failures map[string]error
	// crashAt is the number of the write, from 1, at which the manager crashes; 0 for never. The write is made if
	// crashAfter.
	crashAt    int
	crashAfter bool
	crashed    bool
	// afterWrite runs after each successful write, one at a time.
	afterWrite func(context.Context, string)
	watching   sync.Mutex
}

func newCalls() *calls { return &calls{failures: map[string]error{}} }

// isWrite reports whether calls of this kind are counted as writes.
func isWrite(what string) bool {
	return what != readSlots && what != readPods && what != readClaim && what != listPods && what != createEvent
}

// do makes a call of this kind.
func (c *calls) do(ctx context.Context, what string, call func() error) error {
	before, after := c.fate(what)
	if before != nil {
		return before
	}
	if err := call(); err != nil {
		return err
	}
	if isWrite(what) && c.afterWrite != nil {
		c.watching.Lock()
		defer c.watching.Unlock()
		c.afterWrite(ctx, what)
	}
	return after
}

// fate records a call, and returns the error that it fails with before or after it is made.
func (c *calls) fate(what string) (before, after error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.crashed {
		return errCrash, nil
	}
	if failure := c.failures[what]; failure != nil {
		delete(c.failures, what)
		return failure, nil
	}
	switch what {
	case readPods:
		c.podReads++
	case createEvent:
		c.events++
	}
	if !isWrite(what) {
		return nil, nil
	}
	c.made = append(c.made, what)
	if c.crashed = len(c.made) == c.crashAt; !c.crashed {
		return nil, nil
	}
	if c.crashAfter {
		return nil, errCrash
	}
	return errCrash, nil
}

// failNext makes the next call of this kind fail.
func (c *calls) failNext(what string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failures[what] = err
}

// failedAll reports whether each planned failure has happened.
func (c *calls) failedAll() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.failures) == 0
}

// takeWrites returns the kinds of writes since it was last called.
func (c *calls) takeWrites() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	made := c.made
	c.made = nil
	return made
}

// takePodReads returns the number of reads of pods since it was last called.
func (c *calls) takePodReads() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	reads := c.podReads
	c.podReads = 0
	return reads
}

// takeEvents returns the number of Events since it was last called, whether or not there was one with the same name.
func (c *calls) takeEvents() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	count := c.events
	c.events = 0
	return count
}

func (c *calls) countRead() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads++
}

// takeReads returns the number of lists from the cache and of reads of the slots since it was last called.
func (c *calls) takeReads() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	reads := c.reads
	c.reads = 0
	return reads
}

// count returns how many writes of this kind were made.
func (c *calls) count(what string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, made := range c.made {
		if made == what {
			n++
		}
	}
	return n
}

// kindOf is the kind of a call with this verb for the object.
func kindOf(verb string, object client.Object) string {
	switch of := object.(type) {
	case *corev1.Event:
		return createEvent
	case *corev1.ConfigMap:
		return verb + " slots"
	case *corev1.Node:
		return verb + " node"
	case *corev1.Pod:
		switch of.Name[:min(len(of.Name), 6)] {
		case "gpu-op":
			return verb + " pull pod"
		case driver:
			return verb + " driver pod"
		}
		return verb + " validator pod"
	}
	return fmt.Sprintf("%s %T", verb, object)
}

// wrap returns a client whose calls are these.
func (c *calls) wrap(base client.WithWatch) client.WithWatch {
	return interceptor.NewClient(base, interceptor.Funcs{
		Get: func(
			ctx context.Context, base client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption,
		) error {
			read := func() error { return base.Get(ctx, key, object, options...) }
			switch {
			case key.Name == labels.UpgradeSlots:
				c.countRead()
				return c.do(ctx, readSlots, read)
			case object.GetObjectKind().GroupVersionKind().Kind == "ResourceClaim":
				return c.do(ctx, readClaim, read)
			default:
				return read()
			}
		},
		List: func(ctx context.Context, base client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			selected := client.ListOptions{}
			selected.ApplyOptions(options)
			read := func() error { return base.List(ctx, list, options...) }
			switch {
			case selected.FieldSelector == nil:
				c.countRead()
				return read()
			case selected.Namespace != "":
				c.countRead()
				return c.do(ctx, listPods, read)
			default:
				return c.do(ctx, readPods, read)
			}
		},
		Create: func(ctx context.Context, base client.WithWatch, object client.Object, options ...client.CreateOption) error {
			return c.do(ctx, kindOf("create", object), func() error { return base.Create(ctx, object, options...) })
		},
		Delete: func(ctx context.Context, base client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			return c.do(ctx, kindOf("delete", object), func() error { return base.Delete(ctx, object, options...) })
		},
		Patch: func(
			ctx context.Context, base client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption,
		) error {
			return c.do(ctx, kindOf("patch", object), func() error { return base.Patch(ctx, object, patch, options...) })
		},
		SubResourceCreate: func(
			ctx context.Context, base client.Client, sub string, object, body client.Object,
			options ...client.SubResourceCreateOption,
		) error {
			return c.do(ctx, evictPod, func() error { return base.SubResource(sub).Create(ctx, object, body, options...) })
		},
	})
}
