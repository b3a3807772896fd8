// Package optional owns watches of kinds that the cluster may not serve, such as those of other projects: it discovers
// whether a kind is served, and watches it while the caller needs it.
//
// It does not read the objects. A failed discovery is logged and retried, and delays a pass by at most two seconds.
package optional

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterpolicy/gpu-operator/internal/kube/notify"
)

// Options of a Watch.
type Options struct {
	// Object of the kind, with its GroupVersionKind.
	Object client.Object
	// Cache has the objects once the kind is watched. Mapper discovers the kind.
	Cache  cache.Cache
	Mapper meta.RESTMapper
	Clock  clock.Clock
	// Differs reports whether an update is a change. By default every update is.
	Differs func(before, after any) bool
	// Changed is notified when the result of EnsureWatch may have changed, when an object has changed, and once the
	// cache has synced.
	Changed notify.Signal
}

// Watch is a watch of an optional kind. A caller calls EnsureWatch while it needs the kind, and StopWatch afterwards. A
// manager must run Start, which makes the discovery.
type Watch struct {
	Options
	discovery *discovery

	// mutex guards what follows. Start does not use it.
	mutex    sync.Mutex
	informer cache.Informer
	// since is when the informer was started.
	since time.Time
	// stop ends the wait for the first sync; nil without an informer.
	stop context.CancelFunc
}

// New returns a Watch that is not started.
func New(options Options) *Watch {
	kind := options.Object.GetObjectKind().GroupVersionKind()
	return &Watch{Options: options, discovery: newDiscovery(kind, options.Mapper, options.Clock, options.Changed)}
}

// Start implements manager.Runnable.
func (w *Watch) Start(ctx context.Context) error {
	w.discovery.run(ctx)
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: only a leader watches the kind.
func (w *Watch) NeedLeaderElection() bool { return true }

// StartDiscovery starts the discovery that EnsureWatch waits for, and returns immediately.
func (w *Watch) StartDiscovery() { w.discovery.begin() }

// EnsureWatch starts the watch if the API server serves the kind, and returns the state. It waits at most 2 s for the
// first answer of discovery. Once the kind is watched, the state stays Served until StopWatch.
func (w *Watch) EnsureWatch(ctx context.Context) (State, error) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.informer != nil {
		return Served, nil
	}
	if state := w.discovery.startAndAwait(ctx); state != Served {
		return state, nil
	}
	informer, err := w.Cache.GetInformer(ctx, w.Object, cache.BlockUntilSynced(false))
	if err != nil {
		return Unknown, err
	}
	if _, err := informer.AddEventHandler(w.handler()); err != nil {
		return Unknown, err
	}
	log.FromContext(ctx).Info("Watching an optional kind", "kind", w.discovery.kind.Kind)
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	w.informer, w.since, w.stop = informer, w.Clock.Now(), stop
	go func() {
		// Notify of the sync too, because a kind without objects has no events.
		if toolscache.WaitForCacheSync(running.Done(), informer.HasSynced) {
			w.Changed.Notify()
		}
	}()
	return Served, nil
}

func (w *Watch) handler() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { w.Changed.Notify() },
		UpdateFunc: func(before, after any) {
			if w.Differs == nil || w.Differs(before, after) {
				w.Changed.Notify()
			}
		},
		DeleteFunc: func(any) { w.Changed.Notify() },
	}
}

// StopWatch stops the watch and the discovery. It does nothing if there is none.
func (w *Watch) StopWatch(ctx context.Context) error {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.informer != nil {
		if err := w.Cache.RemoveInformer(ctx, w.Object); err != nil {
			return err
		}
		log.FromContext(ctx).Info("Stopped watching an optional kind", "kind", w.discovery.kind.Kind)
		w.stop()
		w.informer, w.stop = nil, nil
	}
	w.discovery.end()
	return nil
}

// Watching reports whether the kind is watched.
func (w *Watch) Watching() bool {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.informer != nil
}

// Synced reports whether the kind is watched and its cache has synced. It waits for the sync until 2 s after the start
// of the watch.
func (w *Watch) Synced(ctx context.Context) bool {
	const step = 20 * time.Millisecond
	w.mutex.Lock()
	informer, left := w.informer, w.since.Add(answerWithin).Sub(w.Clock.Now())
	w.mutex.Unlock()
	if informer == nil {
		return false
	}
	answered := func(context.Context) (bool, error) { return informer.HasSynced(), nil }
	return wait.PollUntilContextTimeout(ctx, step, left, true, answered) == nil
}
