package observe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// The names of PodIndex's indexes in the informer of pods: all by node, and those without the label of an operand by
// the UID of their controller.
const (
	byNode     = "gpu-operator/node"
	unlabelled = "gpu-operator/unlabelled"
)

// PodIndex finds the cached pods of a node, and those without the label of an operand, without copying them. A list
// copies each pod by value, and at 1,000 nodes such lists are most of what a manager allocates beside the events
// themselves. The zero value is an index without pods until NewInformer has made their informer.
type PodIndex struct {
	pods atomic.Pointer[toolscache.Indexer]
}

// NewInformer makes the informers of a cache, for cache.Options, and adds the indexes to that of pods. The cache may
// have pods of one namespace only.
func (p *PodIndex) NewInformer(
	source toolscache.ListerWatcher, example runtime.Object, resync time.Duration, indexers toolscache.Indexers,
) toolscache.SharedIndexInformer {
	_, ofPods := example.(*corev1.Pod)
	if ofPods {
		indexers[byNode], indexers[unlabelled] = podNodes, unlabelledOf
	}
	informer := toolscache.NewSharedIndexInformer(source, example, resync, indexers)
	if ofPods {
		indexer := informer.GetIndexer()
		p.pods.Store(&indexer)
	}
	return informer
}

// podNodes is IndexPodNode for an informer.
func podNodes(object any) ([]string, error) {
	pod, isPod := object.(*corev1.Pod)
	if !isPod {
		return nil, nil
	}
	return IndexPodNode(pod), nil
}

// unlabelledOf returns the UID of the controller of a pod without the label of an operand.
func unlabelledOf(object any) ([]string, error) {
	pod, isPod := object.(*corev1.Pod)
	if !isPod || pod.Labels[labels.Operand] != "" {
		return nil, nil
	}
	if controller := metav1.GetControllerOfNoCopy(pod); controller != nil {
		return []string{string(controller.UID)}, nil
	}
	return nil, nil
}

// Client returns the client with the indexes, by which PodsOnNode, StackOnNode and HasUnlabelledPod read pods.
func (p *PodIndex) Client(c client.Client) client.Client { return indexedClient{Client: c, index: p} }

// HasPodIndex reports whether the client is one that PodIndex.Client has returned. Other clients need the field index
// PodNodeField.
func HasPodIndex(c client.Client) bool {
	_, has := c.(indexedClient)
	return has
}

// indexedClient is a client whose cache has the index.
type indexedClient struct {
	client.Client
	index *PodIndex
}

// HasUnlabelledPod reports whether one of the controllers has a cached pod without the label of an operand.
func HasUnlabelledPod(
	ctx context.Context, reader client.Reader, namespace string, controllers []types.UID,
) (bool, error) {
	if indexed, has := reader.(indexedClient); has {
		return indexed.hasUnlabelledPod(controllers)
	}
	pods := &corev1.PodList{}
	if err := reader.List(ctx, pods, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("listing pods: %w", err)
	}
	for i := range pods.Items {
		of, err := unlabelledOf(&pods.Items[i])
		if err != nil || len(of) > 0 && slices.Contains(controllers, types.UID(of[0])) {
			return err == nil, err
		}
	}
	return false, nil
}

func (c indexedClient) hasUnlabelledPod(controllers []types.UID) (bool, error) {
	indexer := c.index.pods.Load()
	if indexer == nil {
		return false, errors.New("listing pods: pods are not watched yet")
	}
	for _, controller := range controllers {
		keys, err := (*indexer).IndexKeys(unlabelled, string(controller))
		if err != nil || len(keys) > 0 {
			return err == nil, err
		}
	}
	return false, nil
}

// podsOnNode returns the cached pods of a node, which must not be modified, in any order.
func (c indexedClient) podsOnNode(node string) ([]*corev1.Pod, error) {
	indexer := c.index.pods.Load()
	if indexer == nil {
		return nil, fmt.Errorf("listing pods of node %s: pods are not watched yet", node)
	}
	objects, err := (*indexer).ByIndex(byNode, node)
	if err != nil {
		return nil, fmt.Errorf("listing pods of node %s: %w", node, err)
	}
	pods := make([]*corev1.Pod, 0, len(objects))
	for _, object := range objects {
		if pod, isPod := object.(*corev1.Pod); isPod {
			pods = append(pods, pod)
		}
	}
	return pods, nil
}
