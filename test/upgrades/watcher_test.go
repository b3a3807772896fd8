package upgrades

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// watcher has every version of every node and pod since it was created, and shares no code with the operator.
type watcher struct {
	lock sync.Mutex
	// nodes and pods have all versions, in order.
	nodes []nodeVersion
	pods  []podVersion
	// latest are the nodes that exist.
	latest map[string]nodeVersion
	// drivers and validators are the pods of that app that exist, by node.
	drivers, validators map[string]podVersion
	// foreign are the versions that the test made.
	foreign map[int64]bool
	// usable are the UIDs of nodes whose GPUs could be used once.
	usable map[string]bool
	err    error
}

// nodeVersion is one version of a node.
type nodeVersion struct {
	version int64
	seen    time.Time
	name    string
	uid     string
	deleted bool
	// cordoned; kubeletReady and gpuReady by the node's conditions.
	cordoned, kubeletReady, gpuReady bool
	// unavailable: it is cordoned, or its GPUs cannot be used any more.
	unavailable bool
	state       string
	labels      map[string]string
	annotations map[string]string
}

// podVersion is one version of a pod of the stack.
type podVersion struct {
	version int64
	seen    time.Time
	name    string
	node    string
	uid     string
	app     string
	image   string
	created time.Time
	deleted bool
	// ending: it is being deleted. ready: its condition Ready is True, and it is not ending.
	ending, ready bool
	// readySince is when it has got ready, by its condition, in whole seconds.
	readySince time.Time
}

func (p podVersion) String() string {
	if p.name == "" {
		return "missing"
	}
	return fmt.Sprintf("%s at version %d (ready=%t, created %s)", p.name, p.version, p.ready,
		p.created.Format(time.TimeOnly))
}

// runs reports whether it is a ready driver of this version.
func (p podVersion) runs(version string) bool {
	return p.ready && strings.Contains(p.image, ":"+version+"-")
}

const (
	driverApp    = "nvidia-driver-daemonset"
	validatorApp = "nvidia-operator-validator"
	stateLabel   = "nvidia.com/gpu-driver-upgrade-state"
	gpuReady     = "nvidia.com/GPUReady"
)

// newWatcher starts with what exists.
func newWatcher(t *testing.T, config *rest.Config) *watcher {
	t.Helper()
	w := &watcher{
		latest: map[string]nodeVersion{}, drivers: map[string]podVersion{}, validators: map[string]podVersion{},
		foreign: map[int64]bool{}, usable: map[string]bool{},
	}
	core := kubernetes.NewForConfigOrDie(config).CoreV1()
	nodes, err := core.Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range nodes.Items {
		w.seeNode(&nodes.Items[i], false)
	}
	pods, err := core.Pods(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range pods.Items {
		w.seePod(&pods.Items[i], false)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	running.Go(func() { w.follow(ctx, nodes.ResourceVersion, core.Nodes().Watch) })
	running.Go(func() { w.follow(ctx, pods.ResourceVersion, core.Pods(namespace).Watch) })
	return w
}

// follow watches from a version on. A watch that the API server closes continues where it was, so nothing is missed.
func (w *watcher) follow(
	ctx context.Context, version string, start func(context.Context, metav1.ListOptions) (watch.Interface, error),
) {
	for ctx.Err() == nil {
		events, err := start(ctx, metav1.ListOptions{ResourceVersion: version})
		if err != nil {
			w.fail(ctx, err)
			return
		}
		for event := range events.ResultChan() {
			switch object := event.Object.(type) {
			case *corev1.Node:
				version = object.ResourceVersion
				w.seeNode(object, event.Type == watch.Deleted)
			case *corev1.Pod:
				version = object.ResourceVersion
				w.seePod(object, event.Type == watch.Deleted)
			default:
				w.fail(ctx, fmt.Errorf("watch: %v", event.Object))
			}
		}
		events.Stop()
	}
}

func (w *watcher) fail(ctx context.Context, err error) {
	w.lock.Lock()
	defer w.lock.Unlock()
	if ctx.Err() == nil {
		w.err = errors.Join(w.err, err)
	}
}

func (w *watcher) seeNode(node *corev1.Node, deleted bool) {
	w.lock.Lock()
	defer w.lock.Unlock()
	seen := nodeVersion{
		version: number(node.ResourceVersion), seen: time.Now(), name: node.Name, uid: string(node.UID), deleted: deleted,
		cordoned: node.Spec.Unschedulable, state: node.Labels[stateLabel],
		labels: node.Labels, annotations: node.Annotations,
	}
	for _, condition := range node.Status.Conditions {
		switch condition.Type {
		case corev1.NodeReady:
			seen.kubeletReady = condition.Status == corev1.ConditionTrue
		case gpuReady:
			seen.gpuReady = condition.Status == corev1.ConditionTrue
		}
	}
	w.usable[seen.uid] = w.usable[seen.uid] || seen.gpuReady
	seen.unavailable = !deleted && (seen.cordoned || w.usable[seen.uid] && !seen.gpuReady)
	w.nodes = append(w.nodes, seen)
	if deleted {
		delete(w.latest, seen.name)
		return
	}
	w.latest[seen.name] = seen
}

func (w *watcher) seePod(pod *corev1.Pod, deleted bool) {
	seen := podVersion{
		version: number(pod.ResourceVersion), seen: time.Now(), name: pod.Name, node: pod.Spec.NodeName,
		uid: string(pod.UID), image: pod.Spec.Containers[0].Image, created: pod.CreationTimestamp.Time, deleted: deleted,
		ending: pod.DeletionTimestamp != nil, app: pod.Labels["app"],
	}
	if strings.HasPrefix(seen.app, driverApp) {
		seen.app = driverApp
	}
	if seen.node == "" || seen.app != driverApp && seen.app != validatorApp {
		return
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			seen.ready = condition.Status == corev1.ConditionTrue && !seen.ending
			seen.readySince = condition.LastTransitionTime.Time
		}
	}
	w.lock.Lock()
	defer w.lock.Unlock()
	w.pods = append(w.pods, seen)
	present := w.drivers
	if seen.app == validatorApp {
		present = w.validators
	}
	switch {
	case !deleted:
		present[seen.node] = seen
	case present[seen.node].uid == seen.uid:
		delete(present, seen.node)
	}
}

// number returns a resourceVersion, which orders all objects.
func number(version string) int64 {
	n, err := strconv.ParseInt(version, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

// isForeign records that the test, not the operator, has made a version of a node.
func (w *watcher) isForeign(version string) {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.foreign[number(version)] = true
}

func (w *watcher) node(name string) nodeVersion {
	w.lock.Lock()
	defer w.lock.Unlock()
	return w.latest[name]
}

func (w *watcher) driver(node string) podVersion {
	w.lock.Lock()
	defer w.lock.Unlock()
	return w.drivers[node]
}

// ready returns the nodes whose GPUs can be used.
func (w *watcher) ready() []string {
	w.lock.Lock()
	defer w.lock.Unlock()
	var names []string
	for name, node := range w.latest {
		if node.gpuReady {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// now is the last version of a node or a pod, for use as since.
func (w *watcher) now() int64 {
	w.lock.Lock()
	defer w.lock.Unlock()
	last := int64(0)
	if n := len(w.nodes); n > 0 {
		last = w.nodes[n-1].version
	}
	if n := len(w.pods); n > 0 {
		last = max(last, w.pods[n-1].version)
	}
	return last
}
