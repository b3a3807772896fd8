package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
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
// DaemonSet selects gets a bound pod. Their own work grows with the square of the nodes. It does not replace the pods of
// a changed template, and knows neither taints nor resources.
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
			DeletionTimestamp: pod.DeletionTimestamp, OwnerReferences: pod.OwnerReferences,
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
	placed := map[types.UID]map[string]*corev1.Pod{}
	for i := range pods.Items {
		if owner := metav1.GetControllerOf(&pods.Items[i]); owner != nil {
			if placed[owner.UID] == nil {
				placed[owner.UID] = map[string]*corev1.Pod{}
			}
			placed[owner.UID][pods.Items[i].Spec.NodeName] = &pods.Items[i]
		}
	}
	var failures []error
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
	status := appsv1.DaemonSetStatus{ObservedGeneration: set.Generation}
	var missing, unwanted []string
	for i := range nodes {
		wanted, err := selected.Match(&nodes[i])
		if err != nil {
			return fmt.Errorf("DaemonSet %s: %w", set.Name, err)
		}
		pod := placed[nodes[i].Name]
		switch {
		case wanted && pod == nil:
			missing = append(missing, nodes[i].Name)
		case !wanted && pod != nil && pod.DeletionTimestamp == nil:
			unwanted = append(unwanted, nodes[i].Name)
		}
		if wanted {
			countPod(&status, pod)
		}
	}
	return errors.Join(
		inParallel(ctx, placers, missing, func(ctx context.Context, node string) error {
			err := p.writer.Create(ctx, podFor(set, node))
			if apierrors.IsAlreadyExists(err) {
				// The watch has not delivered it yet.
				return nil
			}
			return err
		}),
		inParallel(ctx, placers, unwanted, func(ctx context.Context, node string) error {
			return client.IgnoreNotFound(p.writer.Delete(ctx, placed[node]))
		}),
		p.report(ctx, set, status))
}

// countPod adds a node that the DaemonSet selects to its status.
func countPod(status *appsv1.DaemonSetStatus, pod *corev1.Pod) {
	status.DesiredNumberScheduled++
	switch {
	case pod == nil:
		status.NumberUnavailable++
		return
	case readySince(pod).IsZero():
		status.NumberUnavailable++
	default:
		status.NumberReady++
		status.NumberAvailable++
	}
	status.CurrentNumberScheduled++
	status.UpdatedNumberScheduled++
}

// report writes the status of a DaemonSet if it has changed.
func (p *placer) report(ctx context.Context, set *appsv1.DaemonSet, status appsv1.DaemonSetStatus) error {
	before := set.Status
	// The other fields are not played.
	if before.ObservedGeneration == status.ObservedGeneration &&
		before.DesiredNumberScheduled == status.DesiredNumberScheduled &&
		before.CurrentNumberScheduled == status.CurrentNumberScheduled && before.NumberReady == status.NumberReady {
		return nil
	}
	changed := set.DeepCopy()
	changed.Status = status
	return client.IgnoreNotFound(p.writer.Status().Patch(ctx, changed, client.MergeFrom(set)))
}

// podFor returns the pod of a DaemonSet on a node, as its controller and the scheduler make it. Its name is the same
// each time, so that it cannot exist twice.
func podFor(set *appsv1.DaemonSet, node string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace, Name: set.Name + "-" + node,
			Labels: maps.Clone(set.Spec.Template.Labels), Annotations: maps.Clone(set.Spec.Template.Annotations),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set,
				appsv1.SchemeGroupVersion.WithKind("DaemonSet"))},
		},
		Spec: *set.Spec.Template.Spec.DeepCopy(),
	}
	pod.Spec.NodeName = node
	return pod
}
