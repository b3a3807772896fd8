package app

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/cachefilter"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// newInformerFunc is the type of cache.Options.NewInformer.
type newInformerFunc func(
	toolscache.ListerWatcher, k8sruntime.Object, time.Duration, toolscache.Indexers,
) toolscache.SharedIndexInformer

// cacheOptions keeps the caches small: only the operator's objects, only in its namespace, only the fields that are
// read, and the labels of nodes once, for the cache and the fleet.
func cacheOptions(namespace string, of state) cache.Options {
	managed := k8slabels.SelectorFromSet(k8slabels.Set{labels.ManagedBy: labels.ManagedByValue})
	trimNode, trimPod := cachefilter.NewNodeTrimmer(of.fleet.Labels).Node, cachefilter.NewPodTrimmer().Pod
	return cache.Options{
		DefaultTransform:  cache.TransformStripManagedFields(),
		NewInformer:       of.newInformer(trimNode, trimPod),
		DefaultNamespaces: map[string]cache.Config{namespace: {LabelSelector: managed}},
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Node{}:         {Transform: trimNode},
			&corev1.Pod{}:          {Transform: trimPod},
			&nodev1.RuntimeClass{}: {Label: managed},
			observe.CRDMetadata():  {Transform: cachefilter.TrimCRD},
		},
	}
}

// newInformer returns what makes the informers of the caches. Where lists are not streamed, those of Nodes and pods,
// which are many and large, are trimmed page by page.
func (of state) newInformer(trimNode, trimPod toolscache.TransformFunc) newInformerFunc {
	return func(
		source toolscache.ListerWatcher, example k8sruntime.Object, resync time.Duration, indexers toolscache.Indexers,
	) toolscache.SharedIndexInformer {
		switch example.(type) {
		case *corev1.Node:
			source = observe.InPages(source, trimNode)
		case *corev1.Pod:
			source = observe.InPages(source, trimPod)
		}
		return of.pods.NewInformer(source, example, resync, indexers)
	}
}
