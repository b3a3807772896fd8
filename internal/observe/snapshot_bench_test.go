package observe_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/observe"
)

// cached lists nodes as the manager's cache does without deep copies.
type cached struct {
	client.Reader
	nodes []runtime.Object
}

func (c cached) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if nodes, isNodes := list.(*corev1.NodeList); isNodes {
		return meta.SetList(nodes, c.nodes)
	}
	return nil
}

// BenchmarkSnapshot is the share of a pass that reads the nodes, none of which has changed.
func BenchmarkSnapshot(b *testing.B) {
	for _, nodes := range []int{1000, 5000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			reader := cached{}
			for i := range nodes {
				reader.nodes = append(reader.nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
					Name: fmt.Sprintf("gpu-%05d", i), UID: "uid", ResourceVersion: "1", Labels: map[string]string{"nvidia.com/gpu.present": "true"},
				}})
			}
			observer := observe.NewObserver(reader, "gpu-operator")
			for b.Loop() {
				if _, err := observer.Snapshot(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
