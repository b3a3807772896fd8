package migration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Watcher follows all pods from its start on, and shares no code with the operator.
type Watcher struct {
	lock sync.Mutex
	// latest has the pods that exist, by UID.
	latest map[string]*corev1.Pod
	// ended are the pods that were deleted or are being deleted, by UID.
	ended map[string]*corev1.Pod
	// ready is how many pods of an app on nodes are ready now, and fewest how few have been at any time.
	fewest map[string]int
	err    error
}

// NewWatcher starts a Watcher with the pods that exist. It ends with the test.
func NewWatcher(t *testing.T, config *rest.Config) *Watcher {
	t.Helper()
	w := &Watcher{latest: map[string]*corev1.Pod{}, ended: map[string]*corev1.Pod{}, fewest: map[string]int{}}
	pods := kubernetes.NewForConfigOrDie(config).CoreV1().Pods("")
	list, err := pods.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		w.latest[string(list.Items[i].UID)] = &list.Items[i]
	}
	for app, ready := range w.readyByApp() {
		w.fewest[app] = ready
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	running.Go(func() { w.follow(ctx, list.ResourceVersion, pods.Watch) })
	return w
}

// follow watches from a version on. A watch that the API server closes continues where it was, so nothing is missed.
func (w *Watcher) follow(
	ctx context.Context, version string, start func(context.Context, metav1.ListOptions) (watch.Interface, error),
) {
	for ctx.Err() == nil {
		events, err := start(ctx, metav1.ListOptions{ResourceVersion: version})
		if err != nil {
			w.fail(ctx, err)
			return
		}
		for event := range events.ResultChan() {
			pod, isPod := event.Object.(*corev1.Pod)
			if !isPod {
				w.fail(ctx, fmt.Errorf("watch: %v", event.Object))
				return
			}
			version = pod.ResourceVersion
			w.see(pod, event.Type == watch.Deleted)
		}
		events.Stop()
	}
}

func (w *Watcher) fail(ctx context.Context, err error) {
	w.lock.Lock()
	defer w.lock.Unlock()
	if ctx.Err() == nil {
		w.err = errors.Join(w.err, err)
	}
}

func (w *Watcher) see(pod *corev1.Pod, deleted bool) {
	w.lock.Lock()
	defer w.lock.Unlock()
	uid := string(pod.UID)
	if deleted || pod.DeletionTimestamp != nil {
		w.ended[uid] = pod
	}
	w.latest[uid] = pod
	if deleted {
		delete(w.latest, uid)
	}
	now := w.readyByApp()
	for app, fewest := range w.fewest {
		w.fewest[app] = min(fewest, now[app])
	}
}

// readyByApp counts the pods that are ready and not ending.
func (w *Watcher) readyByApp() map[string]int {
	ready := map[string]int{}
	for _, pod := range w.latest {
		if pod.DeletionTimestamp == nil && isReady(pod) {
			ready[appOf(pod)]++
		}
	}
	return ready
}

// Err returns why pods may have been missed; nil if none were.
func (w *Watcher) Err() error {
	w.lock.Lock()
	defer w.lock.Unlock()
	return w.err
}

// appOf returns the app of a pod, the same one for all drivers.
func appOf(pod *corev1.Pod) string {
	if pod.Labels[component] == driverComponent {
		return DriverName
	}
	return pod.Labels["app"]
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// EndedOn returns how many pods of an app have ended on each node. All drivers have the app DriverName.
func (w *Watcher) EndedOn(app string) map[string]int {
	w.lock.Lock()
	defer w.lock.Unlock()
	found := map[string]int{}
	for _, pod := range w.ended {
		if appOf(pod) == app {
			found[pod.Spec.NodeName]++
		}
	}
	return found
}

// Apps returns the apps of all pods at the start, and how few pods of each were ready at any time since.
func (w *Watcher) Apps() map[string]int {
	w.lock.Lock()
	defer w.lock.Unlock()
	found := map[string]int{}
	for app, fewest := range w.fewest {
		found[app] = fewest
	}
	return found
}
