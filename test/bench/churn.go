package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
)

// churned is the app whose pods churnPods replaces: nothing waits for them, and the fleet's status counts them.
const churned = "nvidia-dcgm-exporter"

// upgradeDone is the state of a node's driver upgrade that ends it.
const upgradeDone = "upgrade-done"

// podEvents counts what a watch of the operator's namespace sees of pods.
type podEvents struct{ seen atomic.Int64 }

// watchPodEvents counts until the context ends.
func watchPodEvents(ctx context.Context, config *rest.Config) (*podEvents, error) {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create the client that counts events of pods: %w", err)
	}
	counted := &podEvents{}
	pods := informers.NewSharedInformerFactoryWithOptions(clients, 0,
		informers.WithNamespace(namespace)).Core().V1().Pods().Informer()
	seen, err := pods.AddEventHandler(handlerOf(func(*corev1.Pod, bool) { counted.seen.Add(1) }))
	if err != nil {
		return nil, fmt.Errorf("count events of pods: %w", err)
	}
	go pods.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), seen.HasSynced) {
		return nil, fmt.Errorf("count events of pods: %w", context.Cause(ctx))
	}
	return counted, nil
}

// churnPods deletes pods, one on each node at a time, until there have been enough events of pods, and waits each time
// until their successors are ready.
func (s *soaked) churnPods(ctx context.Context) error {
	end := s.watched.seen.Load() + int64(s.events)
	for s.watched.seen.Load() < end {
		list := &corev1.PodList{}
		err := s.client.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{labels.App: churned})
		if err != nil {
			return fmt.Errorf("list the pods of %s: %w", churned, err)
		}
		if err := s.deletePods(ctx, list.Items, false); err != nil {
			return err
		}
		if err := s.awaitDaemonSets(ctx, operandCount, s.size); err != nil {
			return err
		}
	}
	return nil
}

// joinAndLeave makes nodes join, waits until they are ready, and removes them with their pods.
func (s *soaked) joinAndLeave(ctx context.Context, nodes int) error {
	names, err := s.sim.AddNodes(ctx, nodes)
	if err != nil {
		return err
	}
	// Not by the policy's status, whose counters are delayed.
	if err := s.awaitConditions(ctx, s.size+nodes); err != nil {
		return err
	}
	if err := s.deleteNodes(ctx, names); err != nil {
		return err
	}
	joined := map[string]bool{}
	for _, name := range names {
		joined[name] = true
	}
	list := &corev1.PodList{}
	if err := s.client.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("list pods of nodes that have left: %w", err)
	}
	var left []corev1.Pod
	for i := range list.Items {
		if joined[list.Items[i].Spec.NodeName] {
			left = append(left, list.Items[i])
		}
	}
	// Kubernetes itself does so only after a minute.
	return s.deletePods(ctx, left, true)
}

// deletePods deletes pods, with force if no kubelet is left that ends them. Those that are gone are skipped.
func (e *env) deletePods(ctx context.Context, pods []corev1.Pod, force bool) error {
	byName, names := map[string]*corev1.Pod{}, make([]string, 0, len(pods))
	for i := range pods {
		byName[pods[i].Name], names = &pods[i], append(names, pods[i].Name)
	}
	var options []client.DeleteOption
	if force {
		options = append(options, client.GracePeriodSeconds(0))
	}
	return inParallel(ctx, parallel, names, func(ctx context.Context, name string) error {
		if err := e.client.Delete(ctx, byName[name], options...); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete pod %s: %w", name, err)
		}
		return nil
	})
}

// upgraded counts the nodes with a ready driver pod of this version whose upgrade is done and whose GPUs can be used.
func (e *env) upgraded(ctx context.Context, version string) (int, error) {
	pods, nodes := &corev1.PodList{}, &corev1.NodeList{}
	err := errors.Join(e.client.List(ctx, nodes),
		e.client.List(ctx, pods, client.InNamespace(namespace), client.MatchingLabels{labels.App: driverApp}))
	if err != nil {
		return 0, fmt.Errorf("list nodes and driver pods: %w", err)
	}
	done := map[string]bool{}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		condition := assess.GPUReadyCondition(node)
		done[node.Name] = !node.Spec.Unschedulable && node.Labels[labels.UpgradeState] == upgradeDone &&
			condition != nil && condition.Status == corev1.ConditionTrue
	}
	count := 0
	for i := range pods.Items {
		pod := &pods.Items[i]
		if done[pod.Spec.NodeName] && strings.Contains(pod.Spec.Containers[0].Image, version) && !readySince(pod).IsZero() {
			count++
		}
	}
	return count, nil
}
