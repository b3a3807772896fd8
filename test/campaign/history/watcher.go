package history

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Event is one revision of an object.
type Event struct {
	Key
	// Object is the object after the event; if it is Gone, its last state.
	Object client.Object
	// Before is the object before the event, nil if there was none.
	Before client.Object
	Gone   bool
	// Version is the revision, and At when it was observed.
	Version uint64
	At      time.Time
}

// Watcher records events since its start.
type Watcher struct {
	client client.WithWatch
	cancel context.CancelFunc
	ended  sync.WaitGroup

	lock   sync.Mutex
	begin  World
	now    World
	events []Event
	// broken is the error that ended the watch of a kind.
	broken error
}

// Look returns the current world.
func Look(ctx context.Context, c client.Client) (World, error) {
	world := World{}
	for kind, list := range lists() {
		if _, err := read(ctx, c, kind, list, world); err != nil {
			return nil, err
		}
	}
	return world, nil
}

// Start starts the watches, and returns once the current state is read.
func Start(ctx context.Context, c client.WithWatch) (*Watcher, error) {
	ctx, cancel := context.WithCancel(ctx)
	w := &Watcher{client: c, cancel: cancel, begin: World{}, now: World{}}
	versions := map[string]string{}
	for kind, list := range lists() {
		version, err := read(ctx, w.client, kind, list, w.begin)
		if err != nil {
			cancel()
			return nil, err
		}
		versions[kind] = version
	}
	maps.Copy(w.now, w.begin)
	for kind, version := range versions {
		w.ended.Go(func() { w.follow(ctx, kind, version) })
	}
	return w, nil
}

// Stop ends the watches.
func (w *Watcher) Stop() {
	w.cancel()
	w.ended.Wait()
}

// read adds all objects of a kind to a world.
func read(
	ctx context.Context, c client.Client, kind string, list client.ObjectList, into World,
) (version string, err error) {
	if err := c.List(ctx, list); err != nil {
		return "", fmt.Errorf("list %s: %w", kind, err)
	}
	err = meta.EachListItem(list, func(item runtime.Object) error {
		object, is := item.(client.Object)
		if !is {
			return fmt.Errorf("list %s: %T is not an object", kind, item)
		}
		into[keyOf(kind, object)] = object
		return nil
	})
	return list.GetResourceVersion(), err
}

func keyOf(kind string, object client.Object) Key {
	return Key{Kind: kind, Namespace: object.GetNamespace(), Name: object.GetName()}
}

// follow records the events of one kind, and relists if a watch's resourceVersion has expired.
func (w *Watcher) follow(ctx context.Context, kind, version string) {
	for ctx.Err() == nil {
		w.watch(ctx, kind, version)
		for ctx.Err() == nil {
			next, err := w.catchUp(ctx, kind)
			if err == nil {
				version = next
				break
			}
			if sleep(ctx, 200*time.Millisecond) != nil {
				return
			}
		}
	}
}

// watch returns when the watch ends.
func (w *Watcher) watch(ctx context.Context, kind, version string) {
	list := lists()[kind]
	watcher, err := watchtools.NewRetryWatcherWithContext(ctx, version, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return w.client.Watch(ctx, list, &client.ListOptions{Raw: &options})
		},
	})
	if err != nil {
		return
	}
	defer watcher.Stop()
	for event := range watcher.ResultChan() {
		object, is := event.Object.(client.Object)
		if !is || event.Type == watch.Error || event.Type == watch.Bookmark {
			continue
		}
		w.note(kind, object, event.Type == watch.Deleted)
	}
}

// note records a revision, unless it is already recorded.
func (w *Watcher) note(kind string, object client.Object, gone bool) {
	version, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	w.lock.Lock()
	defer w.lock.Unlock()
	if err != nil {
		w.broken = fmt.Errorf("%s %s has the resourceVersion %q: %w", kind, object.GetName(), object.GetResourceVersion(),
			err)
		return
	}
	key := keyOf(kind, object)
	before := w.now[key]
	if before == nil && gone || before != nil && versionOf(before) >= version {
		return
	}
	event := Event{Key: key, Object: object, Before: before, Gone: gone, Version: version, At: time.Now()}
	w.now.Apply(event)
	w.events = append(w.events, event)
}

// catchUp lists a kind, and records the differences from the known state.
func (w *Watcher) catchUp(ctx context.Context, kind string) (version string, err error) {
	there := World{}
	if version, err = read(ctx, w.client, kind, lists()[kind], there); err != nil {
		return "", err
	}
	for _, object := range there {
		w.note(kind, object, false)
	}
	for key, object := range w.World() {
		if _, still := there[key]; key.Kind == kind && !still {
			last, is := object.DeepCopyObject().(client.Object)
			if !is {
				continue
			}
			last.SetResourceVersion(version)
			w.note(kind, last, true)
		}
	}
	return version, nil
}

// World returns the currently known world.
func (w *Watcher) World() World {
	w.lock.Lock()
	defer w.lock.Unlock()
	return maps.Clone(w.now)
}

// Sync waits until everything stored at the time of the call has been observed.
func (w *Watcher) Sync(ctx context.Context) error {
	for kind := range lists() {
		there := World{}
		version, err := read(ctx, w.client, kind, lists()[kind], there)
		if err != nil {
			return err
		}
		listed, err := strconv.ParseUint(version, 10, 64)
		if err != nil {
			return fmt.Errorf("list %s: resourceVersion %q: %w", kind, version, err)
		}
		for !w.hasSeen(kind, there, listed) {
			if err := sleep(ctx, 10*time.Millisecond); err != nil {
				return fmt.Errorf("wait for the events of %s: %w", kind, err)
			}
		}
	}
	w.lock.Lock()
	defer w.lock.Unlock()
	return w.broken
}

// hasSeen reports whether the known state includes everything in a list, and nothing that was deleted by then.
func (w *Watcher) hasSeen(kind string, there World, listed uint64) bool {
	known := w.World()
	for key, object := range there {
		if mine := known[key]; mine == nil || versionOf(mine) < versionOf(object) {
			return false
		}
	}
	for key, object := range known {
		if _, still := there[key]; key.Kind == kind && !still && versionOf(object) <= listed {
			return false
		}
	}
	return true
}

func versionOf(object client.Object) uint64 {
	// note has refused versions that are not numbers.
	version, _ := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	return version
}

// Begin returns the world at the start of the watcher.
func (w *Watcher) Begin() World { return maps.Clone(w.begin) }

// Events returns the events since the start, in the order of their revisions.
func (w *Watcher) Events() []Event {
	w.lock.Lock()
	defer w.lock.Unlock()
	return slices.SortedStableFunc(slices.Values(w.events),
		func(a, b Event) int { return cmp.Compare(a.Version, b.Version) })
}

// sleep waits, and fails if the context ends first.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
