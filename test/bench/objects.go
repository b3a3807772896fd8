package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// create creates an object.
func (e *env) create(ctx context.Context, object client.Object) error {
	if err := e.client.Create(ctx, object); err != nil {
		return fmt.Errorf("create %T %s: %w", object, object.GetName(), err)
	}
	return nil
}

// patch merges a change into an object.
func (e *env) patch(ctx context.Context, object client.Object, change map[string]any) error {
	text, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("encode a change of %s: %w", object.GetName(), err)
	}
	if err := e.client.Patch(ctx, object, client.RawPatch(types.MergePatchType, text)); err != nil {
		return fmt.Errorf("change %s: %w", object.GetName(), err)
	}
	return nil
}

// podOn returns the pod of an app on a node that is not being deleted; nil if there is none.
func (e *env) podOn(ctx context.Context, app, node string) (*corev1.Pod, error) {
	list := &corev1.PodList{}
	err := e.client.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{labels.App: app},
		client.MatchingFields{"spec.nodeName": node})
	if err != nil {
		return nil, fmt.Errorf("look for the pod of %s on %s: %w", app, node, err)
	}
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp == nil {
			return &list.Items[i], nil
		}
	}
	return nil, nil
}

func (e *env) deletePod(ctx context.Context, app, node string) error {
	pod, err := e.podOn(ctx, app, node)
	if err != nil {
		return err
	}
	if pod == nil {
		return fmt.Errorf("there is no pod of %s on %s to delete", app, node)
	}
	if err := e.client.Delete(ctx, pod); err != nil {
		return fmt.Errorf("delete pod %s: %w", pod.Name, err)
	}
	return nil
}

// awaitPod waits until there is a ready pod of an app on a node.
func (e *env) awaitPod(ctx context.Context, app, node string) error {
	return e.await(ctx, "the pod of "+app+" on "+node+" is ready", pollPeriod,
		func(ctx context.Context) (bool, string, error) {
			pod, err := e.podOn(ctx, app, node)
			if err != nil || pod == nil {
				return false, "no pod", err
			}
			since := readySince(pod)
			return !since.IsZero(), string(pod.Status.Phase), nil
		})
}

// work is the state of the running stack: the restart count of each pod, by UID, and the generation of each
// DaemonSet.
type work struct {
	restarts    map[types.UID]int32
	generations map[string]int64
}

func (e *env) work(ctx context.Context) (work, error) {
	nodes, pods, sets := &corev1.NodeList{}, &corev1.PodList{}, &appsv1.DaemonSetList{}
	err := errors.Join(e.client.List(ctx, nodes), e.client.List(ctx, pods, client.InNamespace(namespace)),
		e.client.List(ctx, sets, client.InNamespace(namespace)))
	if err != nil {
		return work{}, fmt.Errorf("list nodes, pods and DaemonSets: %w", err)
	}
	there := map[string]bool{}
	for i := range nodes.Items {
		there[nodes.Items[i].Name] = true
	}
	w := work{restarts: map[types.UID]int32{}, generations: map[string]int64{}}
	for i := range pods.Items {
		if !there[pods.Items[i].Spec.NodeName] {
			// The pod of a removed node: the garbage collector takes a minute.
			continue
		}
		sum := int32(0)
		for _, container := range pods.Items[i].Status.ContainerStatuses {
			sum += container.RestartCount
		}
		w.restarts[pods.Items[i].UID] = sum
	}
	for i := range sets.Items {
		w.generations[sets.Items[i].Name] = sets.Items[i].Generation
	}
	return w, nil
}

// disturbed counts the pods that were deleted or restarted meanwhile, and the DaemonSets that were changed or deleted.
func (w work) disturbed(after work) (pods, daemonSets int) {
	for uid, before := range w.restarts {
		if now, there := after.restarts[uid]; !there || now != before {
			pods++
		}
	}
	for name, before := range w.generations {
		if after.generations[name] != before {
			daemonSets++
		}
	}
	return pods, daemonSets
}

// undisturbed returns the figures for a phase that must not disturb the work.
func (e *env) undisturbed(ctx context.Context, what string, before work) ([]figure, error) {
	after, err := e.work(ctx)
	if err != nil {
		return nil, err
	}
	pods, daemonSets := before.disturbed(after)
	return []figure{
		atMost("pods deleted or restarted: "+what, float64(pods), 0, count),
		atMost("DaemonSets changed: "+what, float64(daemonSets), 0, count),
	}, nil
}
