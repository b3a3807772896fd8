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

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// gpuReady is the condition that the operator writes on nodes. It is repeated here so that the measurement does not
// depend on the operator's code.
const gpuReady corev1.NodeConditionType = "nvidia.com/GPUReady"

// watcher records by watches when everything is ready: each DaemonSet of the namespace that wants pods has a Ready pod
// on each node, and the status of the policy says ready. It knows nothing else of the operator that is measured.
type watcher struct {
	// nodes is their number. They are identical, so that a DaemonSet wants pods on all or none of them.
	nodes int
	// floor are the DaemonSets that must want pods; nil: any, and there is a policy.
	floor []string
	// policies is the resource of the policy.
	policies schema.GroupVersionResource
	// ready is closed at readyAt, and conditions at conditionsAt.
	ready, conditions chan struct{}

	lock sync.Mutex
	// podsAt is when all wanted pods were Ready for the first time, readyAt when the policy was ready at the same time,
	// and conditionsAt when the condition GPUReady of each node was True for the first time.
	podsAt, readyAt, conditionsAt time.Time
	// wanted are the numbers of pods that DaemonSets want, unknown while the status is of another generation.
	wanted map[string]int32
	// readyPods are the UIDs of Ready pods by DaemonSet and node, and trueNodes the nodes whose condition is True.
	readyPods map[string]map[string]string
	trueNodes map[string]bool
	// policyReady: the status of the policy says ready.
	policyReady bool
}

// unknown is the number of wanted pods of a DaemonSet whose status is of an earlier generation.
const unknown = -1

// newWatcher returns a watcher of an operator, or of a floor if there are names of DaemonSets.
func newWatcher(nodes int, floor []string) *watcher {
	return &watcher{
		nodes: nodes, floor: floor, ready: make(chan struct{}), conditions: make(chan struct{}),
		wanted: map[string]int32{}, readyPods: map[string]map[string]string{}, trueNodes: map[string]bool{},
	}
}

// start watches until the context ends, and returns once the current state is read.
func (w *watcher) start(ctx context.Context, config *rest.Config) error {
	typed := rest.CopyConfig(config)
	typed.ContentType = "application/vnd.kubernetes.protobuf"
	typed.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	clients, err := kubernetes.NewForConfig(typed)
	if err != nil {
		return fmt.Errorf("create the client of the watcher: %w", err)
	}
	inNamespace := informers.NewSharedInformerFactoryWithOptions(clients, 0, informers.WithNamespace(namespace))
	watched := map[cache.SharedIndexInformer]cache.ResourceEventHandler{
		inNamespace.Core().V1().Pods().Informer():                                     handlerOf(w.podSeen),
		inNamespace.Apps().V1().DaemonSets().Informer():                               handlerOf(w.daemonSetSeen),
		informers.NewSharedInformerFactory(clients, 0).Core().V1().Nodes().Informer(): handlerOf(w.nodeSeen),
	}
	if w.floor == nil {
		policies, err := dynamic.NewForConfig(config)
		if err != nil {
			return fmt.Errorf("create the client of the watcher: %w", err)
		}
		informer := dynamicinformer.NewFilteredDynamicInformer(policies, w.policies, metav1.NamespaceAll, 0, nil, nil)
		watched[informer.Informer()] = handlerOf(w.policySeen)
	}
	return runInformers(ctx, watched)
}

// runInformers runs informers until the context ends, and returns once their handlers have the current state.
func runInformers(ctx context.Context, watched map[cache.SharedIndexInformer]cache.ResourceEventHandler) error {
	var synced []cache.InformerSynced
	var errs []error
	for informer, handler := range watched {
		registered, err := informer.AddEventHandler(handler)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		synced = append(synced, registered.HasSynced)
		go informer.RunWithContext(ctx)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("watch the cluster: %w", err)
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return fmt.Errorf("watch the cluster: %w", context.Cause(ctx))
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
	if owner == nil || owner.Kind != "DaemonSet" {
		return
	}
	w.lock.Lock()
	defer w.lock.Unlock()
	onNodes, uid := w.readyPods[owner.Name], string(pod.UID)
	if onNodes == nil {
		onNodes = map[string]string{}
		w.readyPods[owner.Name] = onNodes
	}
	switch {
	case !gone && pod.DeletionTimestamp == nil && !readySince(pod).IsZero():
		onNodes[pod.Spec.NodeName] = uid
	case onNodes[pod.Spec.NodeName] == uid:
		delete(onNodes, pod.Spec.NodeName)
	}
	w.record()
}

func (w *watcher) daemonSetSeen(set *appsv1.DaemonSet, gone bool) {
	w.lock.Lock()
	defer w.lock.Unlock()
	switch {
	case gone:
		delete(w.wanted, set.Name)
	case set.Status.ObservedGeneration != set.Generation:
		w.wanted[set.Name] = unknown
	default:
		w.wanted[set.Name] = set.Status.DesiredNumberScheduled
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
	if w.conditionsAt.IsZero() && len(w.trueNodes) >= w.nodes {
		w.conditionsAt = time.Now()
		close(w.conditions)
	}
}

// policySeen reads the status, which is of the current generation unless it says that it is not.
func (w *watcher) policySeen(policy *unstructured.Unstructured, gone bool) {
	state, _, stateErr := unstructured.NestedString(policy.Object, "status", "state")
	observed, has, observedErr := unstructured.NestedInt64(policy.Object, "status", "observedGeneration")
	current := errors.Join(stateErr, observedErr) == nil && (!has || observed == policy.GetGeneration())
	w.lock.Lock()
	defer w.lock.Unlock()
	w.policyReady = !gone && current && state == "ready"
	w.record()
}

// record sets the times on first occurrence. The caller holds the lock.
func (w *watcher) record() {
	if !w.readyAt.IsZero() || !w.podsReady() {
		return
	}
	now := time.Now()
	if w.podsAt.IsZero() {
		w.podsAt = now
	}
	if w.floor != nil || w.policyReady {
		w.readyAt = now
		close(w.ready)
	}
}

// podsReady reports whether all wanted pods are Ready. The caller holds the lock.
func (w *watcher) podsReady() bool {
	some := false
	for name, wanted := range w.wanted {
		// A number between none and all: the nodes are still being labelled.
		if wanted != 0 && int(wanted) != w.nodes || len(w.readyPods[name]) < int(wanted) {
			return false
		}
		some = some || wanted > 0
	}
	return some && !slices.ContainsFunc(w.floor, func(name string) bool { return w.wanted[name] == 0 })
}

// moments returns when all pods were Ready and when everything was ready; zero: not yet.
func (w *watcher) moments() (pods, all time.Time) {
	w.lock.Lock()
	defer w.lock.Unlock()
	return w.podsAt, w.readyAt
}

// conditionsMoment returns when the condition of each node was True; zero: not yet.
func (w *watcher) conditionsMoment() time.Time {
	w.lock.Lock()
	defer w.lock.Unlock()
	return w.conditionsAt
}

// wantedPods returns how many pods each DaemonSet wants.
func (w *watcher) wantedPods() map[string]int32 {
	w.lock.Lock()
	defer w.lock.Unlock()
	return maps.Clone(w.wanted)
}

// stillReady returns an error if something is no longer ready, or if the DaemonSets want other pods than before: the
// end was not one.
func (w *watcher) stillReady(before map[string]int32) error {
	w.lock.Lock()
	defer w.lock.Unlock()
	if !maps.Equal(w.wanted, before) {
		return fmt.Errorf("the DaemonSets wanted pods %v when everything was ready, and now %v", before, w.wanted)
	}
	if !w.podsReady() || w.floor == nil && !w.policyReady {
		return fmt.Errorf("it was ready and is not any more: %s", w.counts())
	}
	return nil
}

// state returns counts of what is ready, for the error of a wait.
func (w *watcher) state() string {
	w.lock.Lock()
	defer w.lock.Unlock()
	return w.counts()
}

// counts returns what is ready. The caller holds the lock.
func (w *watcher) counts() string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(w.wanted)) {
		texts = append(texts, fmt.Sprintf("%s %d/%d", name, len(w.readyPods[name]), w.wanted[name]))
	}
	return fmt.Sprintf("Ready pods: %s; the policy is ready: %t; nodes whose condition is True: %d",
		strings.Join(texts, ", "), w.policyReady, len(w.trueNodes))
}
