package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// placingPeriod is how often the placer compares pods with DaemonSets.
	placingPeriod = 500 * time.Millisecond
	// placers is how many pods it creates or deletes concurrently.
	placers = 16
)

// placer does the work of the DaemonSet controller and of the scheduler on a minimal control plane: each node that a
// DaemonSet selects gets a bound pod. Their own work grows with the square of the nodes. It knows neither taints nor
// resources, and replaces outdated pods one at a time.
type placer struct {
	// cached reads from watches.
	cached client.Reader
	writer client.Client
	errOut io.Writer
}

// startPlacer runs a placer until the context ends, and returns once it has read the current state.
func (e *env) startPlacer(ctx context.Context, errOut io.Writer) error {
	watched, err := cache.New(e.cluster.SimulatorConfig, cache.Options{
		Scheme: e.client.Scheme(), DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}:       {Namespaces: map[string]cache.Config{namespace: {}}, Transform: withoutSpec},
			&appsv1.DaemonSet{}: {Namespaces: map[string]cache.Config{namespace: {}}},
		},
	})
	if err != nil {
		return fmt.Errorf("make a cache for placing pods: %w", err)
	}
	for _, object := range []client.Object{&corev1.Pod{}, &corev1.Node{}, &appsv1.DaemonSet{}} {
		if _, err := watched.GetInformer(ctx, object); err != nil {
			return fmt.Errorf("watch %T: %w", object, err)
		}
	}
	p := &placer{cached: watched, writer: e.client, errOut: errOut}
	go func() {
		if err := watched.Start(ctx); err != nil {
			fmt.Fprintln(errOut, "placing pods:", err)
		}
	}()
	if !watched.WaitForCacheSync(ctx) {
		return errors.New("place pods: the caches were not synced")
	}
	go p.run(ctx)
	return nil
}

// withoutSpec keeps of a pod what the placer reads.
func withoutSpec(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			Labels: pod.Labels, DeletionTimestamp: pod.DeletionTimestamp, OwnerReferences: pod.OwnerReferences,
		},
		Spec:   corev1.PodSpec{NodeName: pod.Spec.NodeName},
		Status: corev1.PodStatus{Conditions: pod.Status.Conditions},
	}, nil
}

func (p *placer) run(ctx context.Context) {
	tick := time.NewTicker(placingPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := p.place(ctx); err != nil && ctx.Err() == nil {
			fmt.Fprintln(p.errOut, "placing pods:", err)
		}
	}
}

// place compares the pods of each DaemonSet with the nodes once.
func (p *placer) place(ctx context.Context) error {
	sets, nodes, pods := &appsv1.DaemonSetList{}, &corev1.NodeList{}, &corev1.PodList{}
	if err := errors.Join(p.cached.List(ctx, sets), p.cached.List(ctx, nodes, client.UnsafeDisableDeepCopy),
		p.cached.List(ctx, pods, client.UnsafeDisableDeepCopy)); err != nil {
		return fmt.Errorf("list: %w", err)
	}
	there := map[string]bool{}
	for i := range nodes.Items {
		there[nodes.Items[i].Name] = true
	}
	placed := map[types.UID]map[string]*corev1.Pod{}
	var left []*corev1.Pod
	for i := range pods.Items {
		pod := &pods.Items[i]
		owner := metav1.GetControllerOf(pod)
		switch {
		case !there[pod.Spec.NodeName]:
			left = append(left, pod)
		case owner != nil:
			if placed[owner.UID] == nil {
				placed[owner.UID] = map[string]*corev1.Pod{}
			}
			placed[owner.UID][pod.Spec.NodeName] = pod
		}
	}
	failures := []error{p.remove(ctx, left, client.GracePeriodSeconds(0))}
	for i := range sets.Items {
		failures = append(failures, p.placeSet(ctx, &sets.Items[i], nodes.Items, placed[sets.Items[i].UID]))
	}
	return errors.Join(failures...)
}

// placeSet creates and deletes the pods of a DaemonSet, and writes its status.
func (p *placer) placeSet(
	ctx context.Context, set *appsv1.DaemonSet, nodes []corev1.Node, placed map[string]*corev1.Pod,
) error {
	selected := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: set.Spec.Template.Spec})
	revision, err := revisionOf(set)
	if err != nil {
		return err
	}
	found := placement{status: appsv1.DaemonSetStatus{ObservedGeneration: set.Generation}, revision: revision}
	for i := range nodes {
		wanted, err := selected.Match(&nodes[i])
		if err != nil {
			return fmt.Errorf("DaemonSet %s: %w", set.Name, err)
		}
		found.add(nodes[i].Name, wanted, placed[nodes[i].Name])
	}
	if set.Spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType && found.status.NumberUnavailable == 0 {
		found.unwanted = append(found.unwanted, found.outdated[:min(1, len(found.outdated))]...)
	}
	return errors.Join(p.create(ctx, set, found.missing, revision), p.remove(ctx, found.unwanted),
		p.report(ctx, set, found.status))
}

// placement compares the pods of one DaemonSet with the nodes.
type placement struct {
	status appsv1.DaemonSetStatus
	// revision identifies the current template.
	revision string
	// missing are the nodes without a pod that should have one.
	missing            []string
	unwanted, outdated []*corev1.Pod
}

// add adds a node, whether the DaemonSet selects it, and its pod, if there is one.
func (p *placement) add(node string, wanted bool, pod *corev1.Pod) {
	switch {
	case wanted && pod == nil:
		p.missing = append(p.missing, node)
	case !wanted && pod != nil:
		p.unwanted = append(p.unwanted, pod)
	case wanted && pod.Labels[appsv1.ControllerRevisionHashLabelKey] != p.revision:
		p.outdated = append(p.outdated, pod)
	}
	if wanted {
		countPod(&p.status, pod, p.revision)
	}
}

// create creates the pods of a DaemonSet on nodes.
func (p *placer) create(ctx context.Context, set *appsv1.DaemonSet, nodes []string, revision string) error {
	return inParallel(ctx, placers, nodes, func(ctx context.Context, node string) error {
		err := p.writer.Create(ctx, podFor(set, node, revision))
		if apierrors.IsAlreadyExists(err) {
			// The watch has not delivered it yet.
			return nil
		}
		return err
	})
}

// remove deletes pods. Without options it skips those that are being deleted.
func (p *placer) remove(ctx context.Context, pods []*corev1.Pod, options ...client.DeleteOption) error {
	byName := map[string]*corev1.Pod{}
	for _, pod := range pods {
		if pod.DeletionTimestamp == nil || len(options) > 0 {
			byName[pod.Name] = pod
		}
	}
	return inParallel(ctx, placers, slices.Collect(maps.Keys(byName)), func(ctx context.Context, name string) error {
		return client.IgnoreNotFound(p.writer.Delete(ctx, byName[name], options...))
	})
}

// revisionOf identifies the template of a DaemonSet.
func revisionOf(set *appsv1.DaemonSet) (string, error) {
	text, err := json.Marshal(set.Spec.Template)
	if err != nil {
		return "", fmt.Errorf("encode the template of DaemonSet %s: %w", set.Name, err)
	}
	hash := fnv.New64a()
	hash.Write(text)
	return strconv.FormatUint(hash.Sum64(), 36), nil
}

// countPod adds a node that the DaemonSet selects, and its pod if there is one, to the status.
func countPod(status *appsv1.DaemonSetStatus, pod *corev1.Pod, revision string) {
	status.DesiredNumberScheduled++
	if pod == nil {
		status.NumberUnavailable++
		return
	}
	status.CurrentNumberScheduled++
	if pod.Labels[appsv1.ControllerRevisionHashLabelKey] == revision {
		status.UpdatedNumberScheduled++
	}
	if readySince(pod).IsZero() {
		status.NumberUnavailable++
		return
	}
	status.NumberReady++
	status.NumberAvailable++
}

// report writes the status of a DaemonSet if it has changed.
func (p *placer) report(ctx context.Context, set *appsv1.DaemonSet, status appsv1.DaemonSetStatus) error {
	if equality.Semantic.DeepEqual(set.Status, status) {
		return nil
	}
	changed := set.DeepCopy()
	changed.Status = status
	return client.IgnoreNotFound(p.writer.Status().Patch(ctx, changed, client.MergeFrom(set)))
}

// podFor returns the pod of a DaemonSet on a node, as its controller and the scheduler make it. Its name is the same
// each time, so that it cannot exist twice.
func podFor(set *appsv1.DaemonSet, node, revision string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace, Name: set.Name + "-" + node,
			Labels: maps.Clone(set.Spec.Template.Labels), Annotations: maps.Clone(set.Spec.Template.Annotations),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set,
				appsv1.SchemeGroupVersion.WithKind("DaemonSet"))},
		},
		Spec: *set.Spec.Template.Spec.DeepCopy(),
	}
	pod.Labels[appsv1.ControllerRevisionHashLabelKey] = revision
	pod.Spec.NodeName = node
	return pod
}
