package app

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/test/heap"
)

const (
	// listedCount is the number of objects of the oldServer, and decodedSize the size of what is trimmed of each.
	listedCount, decodedSize = 4000, 16 << 10
	// maxFilling limits the heap while a cache is filled: a quarter of all objects before they are trimmed.
	maxFilling = listedCount * decodedSize / 4
)

// oldServer lists as the API server of Kubernetes 1.33, which streams no lists, and ignores the limit of a list that
// may be of any age.
type oldServer struct {
	of func(meta metav1.ObjectMeta) k8sruntime.Object
	// peak is the largest live heap after the objects of an answer were decoded.
	peak int64
}

func (s *oldServer) list(_ context.Context, options metav1.ListOptions) (k8sruntime.Object, error) {
	from, limit := 0, int(options.Limit)
	if options.Continue != "" {
		var err error
		if from, err = strconv.Atoi(options.Continue); err != nil {
			return nil, err
		}
	}
	if options.ResourceVersion == "0" || limit == 0 {
		limit = listedCount
	}
	list := &corev1.List{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
	for i := from; i < min(from+limit, listedCount); i++ {
		list.Items = append(list.Items, k8sruntime.RawExtension{Object: s.of(metav1.ObjectMeta{
			Namespace: "gpu-operator", Name: fmt.Sprint("object-", i), ResourceVersion: "7",
			Annotations: map[string]string{"example.com/large": strings.Repeat("x", decodedSize)},
		})})
	}
	if from+limit < listedCount {
		list.Continue = strconv.Itoa(from + limit)
	}
	s.peak = max(s.peak, heap.Live())
	return list, nil
}

func (s *oldServer) watch(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if options.SendInitialEvents != nil {
		return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil)
	}
	return watch.NewFake(), nil
}

// On a server that streams no lists, the caches of Nodes and pods never hold all objects before they are trimmed.
func TestCachesAreFilledInPages(t *testing.T) {
	options := cacheOptions("gpu-operator", state{fleet: fleet.New(), pods: &observe.PodIndex{}})
	for name, example := range map[string]func(metav1.ObjectMeta) k8sruntime.Object{
		"Nodes": func(meta metav1.ObjectMeta) k8sruntime.Object { return &corev1.Node{ObjectMeta: meta} },
		"pods":  func(meta metav1.ObjectMeta) k8sruntime.Object { return &corev1.Pod{ObjectMeta: meta} },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server, before := &oldServer{of: example}, heap.Live()
			informer := options.NewInformer(
				&toolscache.ListWatch{ListWithContextFunc: server.list, WatchFuncWithContext: server.watch},
				example(metav1.ObjectMeta{}), 0, toolscache.Indexers{},
			)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go informer.RunWithContext(ctx)
			g.Expect(toolscache.WaitForCacheSync(ctx.Done(), informer.HasSynced)).To(BeTrue())
			g.Expect(informer.GetIndexer().ListKeys()).To(HaveLen(listedCount))
			t.Logf("%d kB more while the cache is filled", (server.peak-before)>>10)
			g.Expect(server.peak - before).To(BeNumerically("<", maxFilling))
		})
	}
}
