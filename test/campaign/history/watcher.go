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
	// Object is the object after the event; where it is Gone, its last state.
	Object client.Object
	// Before is the object before the event, nil where there was none.
	Before client.Object
	Gone   bool
	// Version is the revision, and At when it was seen.
	Version uint64
	At      time.Time
}

// Watcher records events from when it was started.
type Watcher struct {
	client client.WithWatch
	cancel context.CancelFunc
	ended  sync.WaitGroup

	lock   sync.Mutex
	begin  World
	now    World
	events []Event
	// broken is why a kind could not be watched any more.
	broken error
}

// Look returns what there is.
func Look(ctx context.Context, c client.Client) (World, error) {
	world := World{}
	for kind, list := range lists() {
		if _, err := read(ctx, c, kind, list, world); err != nil {
			return nil, err
		}
	}
	return world, nil
}

// Start begins to watch, and returns once the present state is known.
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

// read puts all objects of a kind into a world.
func read(ctx context.Context, c client.Client, kind string, list client.ObjectList, into World) (version string, err error) {
	if err := c.List(ctx, list); err != nil {
		return "", fmt.Errorf("list %s: %w", kind, err)
	}
	err = meta.EachListItem(list, func(item runtime.Object) error {
		object, is := item.(client.Object)
		if !is {
			return fmt.Errorf("list %s: %T is no object", kind, item)
		}
		into[keyOf(kind, object)] = object
		return nil
	})
	return list.GetResourceVersion(), err
}

func keyOf(kind string, object client.Object) Key {
	return Key{Kind: kind, Namespace: object.GetNamespace(), Name: object.GetName()}
}

// follow records the events of one kind, and lists again where a watch has lost its place.
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

// note records a revision, unless it is known.
func (w *Watcher) note(kind string, object client.Object, gone bool) {
	version, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	w.lock.Lock()
	defer w.lock.Unlock()
	if err != nil {
		w.broken = fmt.Errorf("%s %s has the resourceVersion %q: %w", kind, object.GetName(), object.GetResourceVersion(), err)
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

// catchUp lists a kind, and records what differs from what is known.
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

// World is what is known now.
func (w *Watcher) World() World {
	w.lock.Lock()
	defer w.lock.Unlock()
	return maps.Clone(w.now)
}

// Sync waits until all that is stored now has been seen.
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

// hasSeen reports whether all of a list is known, and nothing that was gone by then.
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
	// One that is no number has been refused by note.
	version, _ := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	return version
}

// Begin is what there was when the watcher was started.
func (w *Watcher) Begin() World { return maps.Clone(w.begin) }

// Events are what has happened since, in the order of their revisions.
func (w *Watcher) Events() []Event {
	w.lock.Lock()
	defer w.lock.Unlock()
	return slices.SortedStableFunc(slices.Values(w.events), func(a, b Event) int { return cmp.Compare(a.Version, b.Version) })
}

// sleep waits, and fails if the context ends before.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
