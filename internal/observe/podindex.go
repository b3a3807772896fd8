package observe

import (
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// byNode is the name of PodIndex's index in the informer of pods.
const byNode = "gpu-operator/node"

// PodIndex finds the cached pods of a node without copying them. A list copies each pod by value, and at 1,000 nodes
// such lists are most of what a manager allocates beside the events themselves. The zero value is an index without
// pods until NewInformer has made their informer.
type PodIndex struct {
	pods atomic.Pointer[toolscache.Indexer]
}

// NewInformer makes the informers of a cache, for cache.Options, and adds the index to that of pods. The cache may have
// pods of one namespace only.
func (p *PodIndex) NewInformer(
	source toolscache.ListerWatcher, example runtime.Object, resync time.Duration, indexers toolscache.Indexers,
) toolscache.SharedIndexInformer {
	_, ofPods := example.(*corev1.Pod)
	if ofPods {
		indexers[byNode] = podNodes
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

// Client returns the client with the index, by which PodsOnNode and StackOnNode read pods.
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
