package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// gpuReady is the condition that the operator writes on nodes. It is repeated here so that the measurement does not
// depend on the operator's code.
const gpuReady corev1.NodeConditionType = "nvidia.com/GPUReady"

// place is a DaemonSet and a node: it has one pod.
type place struct{ daemonSet, node string }

// watcher records by watches, independently of the operator's status, when every DaemonSet has a Ready pod on every
// node, and when the condition GPUReady of every node is True too.
type watcher struct {
	daemonSets []string
	nodes      int
	// conditions: wait for the conditions of the nodes too.
	conditions bool
	// ready is closed at readyAt.
	ready chan struct{}

	lock sync.Mutex
	// podsAt is when all pods were Ready for the first time, and readyAt when all conditions were True at the same time.
	podsAt, readyAt time.Time
	// readyPods are the Ready pods by place, and trueNodes the nodes whose condition is True.
	readyPods map[place]string
	trueNodes map[string]bool
}

func newWatcher(daemonSets []string, nodes int, conditions bool) *watcher {
	return &watcher{
		daemonSets: daemonSets, nodes: nodes, conditions: conditions, ready: make(chan struct{}),
		readyPods: map[place]string{}, trueNodes: map[string]bool{},
	}
}

// start watches pods and nodes until the context ends, and returns once the current state is read.
func (w *watcher) start(ctx context.Context, config *rest.Config) error {
	config = rest.CopyConfig(config)
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("create the client of the watcher: %w", err)
	}
	pods := informers.NewSharedInformerFactoryWithOptions(clients, 0,
		informers.WithNamespace(namespace)).Core().V1().Pods().Informer()
	nodes := informers.NewSharedInformerFactory(clients, 0).Core().V1().Nodes().Informer()
	podsSeen, podsErr := pods.AddEventHandler(handlerOf(w.podSeen))
	nodesSeen, nodesErr := nodes.AddEventHandler(handlerOf(w.nodeSeen))
	if err := errors.Join(podsErr, nodesErr); err != nil {
		return fmt.Errorf("watch pods and nodes: %w", err)
	}
	go pods.RunWithContext(ctx)
	go nodes.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), podsSeen.HasSynced, nodesSeen.HasSynced) {
		return fmt.Errorf("watch pods and nodes: %w", context.Cause(ctx))
	}
	return nil
}

// handlerOf passes each object on, with whether it was deleted.
func handlerOf[T any](seen func(object *T, gone bool)) cache.ResourceEventHandler {
	pass := func(object any, gone bool) {
		if unknown, missed := object.(cache.DeletedFinalStateUnknown); missed {
			object = unknown.Obj
		}
		if typed, ok := object.(*T); ok {
			seen(typed, gone)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { pass(object, false) },
		UpdateFunc: func(_, object any) { pass(object, false) },
		DeleteFunc: func(object any) { pass(object, true) },
	}
}

func (w *watcher) podSeen(pod *corev1.Pod, gone bool) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || !slices.Contains(w.daemonSets, owner.Name) {
		return
	}
	at, uid := place{owner.Name, pod.Spec.NodeName}, string(pod.UID)
	w.lock.Lock()
	defer w.lock.Unlock()
	switch {
	case !gone && pod.DeletionTimestamp == nil && !readySince(pod).IsZero():
		w.readyPods[at] = uid
	case w.readyPods[at] == uid:
		delete(w.readyPods, at)
	}
	w.record()
}

func (w *watcher) nodeSeen(node *corev1.Node, gone bool) {
	isTrue := func(c corev1.NodeCondition) bool { return c.Type == gpuReady && c.Status == corev1.ConditionTrue }
	w.lock.Lock()
	defer w.lock.Unlock()
	if !gone && slices.ContainsFunc(node.Status.Conditions, isTrue) {
		w.trueNodes[node.Name] = true
	} else {
		delete(w.trueNodes, node.Name)
	}
	w.record()
}

// record sets the times on first occurrence. The caller holds the lock.
func (w *watcher) record() {
	if !w.readyAt.IsZero() || len(w.readyPods) < len(w.daemonSets)*w.nodes {
		return
	}
	now := time.Now()
	if w.podsAt.IsZero() {
		w.podsAt = now
	}
	if w.conditions && len(w.trueNodes) < w.nodes {
		return
	}
	w.readyAt = now
	close(w.ready)
}

// moments returns when all pods were Ready and when everything was ready; zero: not yet.
func (w *watcher) moments() (pods, all time.Time) {
	w.lock.Lock()
	defer w.lock.Unlock()
	return w.podsAt, w.readyAt
}

// state returns counts of what is ready, for the error of a wait.
func (w *watcher) state() string {
	w.lock.Lock()
	defer w.lock.Unlock()
	pods := map[string]int{}
	for _, name := range w.daemonSets {
		pods[name] = 0
	}
	for at := range w.readyPods {
		pods[at.daemonSet]++
	}
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(pods)) {
		texts = append(texts, fmt.Sprintf("%s %d/%d", name, pods[name], w.nodes))
	}
	return fmt.Sprintf("Ready pods: %s; nodes whose condition is True: %d", strings.Join(texts, ", "), len(w.trueNodes))
}
