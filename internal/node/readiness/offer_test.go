package readiness_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
)

func TestOffer(t *testing.T) {
	const h100 = "NVIDIA-H100-80GB-HBM3"
	for name, test := range map[string]struct {
		labels   map[string]string
		capacity map[corev1.ResourceName]string
		replicas int
		want     string
	}{
		"no GPU": {},
		"whole GPUs": {labels: map[string]string{"nvidia.com/gpu.product": h100, "nvidia.com/gpu.replicas": "1"},
			capacity: map[corev1.ResourceName]string{"nvidia.com/gpu": "4"}},
		"time slices": {
			labels: map[string]string{"nvidia.com/gpu.product": h100 + "-SHARED", "nvidia.com/gpu.replicas": "4",
				"nvidia.com/gpu.sharing-strategy": "time-slicing"},
			capacity: map[corev1.ResourceName]string{"nvidia.com/gpu": "16"},
			want:     "nvidia.com/gpu: 4 x 4 shared = 16 (NVIDIA-H100-80GB-HBM3-SHARED)",
		},
		"time slices by the configuration alone": {
			capacity: map[corev1.ResourceName]string{"nvidia.com/gpu": "16"}, replicas: 4,
			want: "nvidia.com/gpu: 4 x 4 shared = 16",
		},
		"two time slices by the configuration alone": {
			capacity: map[corev1.ResourceName]string{"nvidia.com/gpu": "16"}, replicas: 2,
			want: "nvidia.com/gpu: 8 x 2 shared = 16",
		},
		"whole GPUs, and configured otherwise since": {
			labels:   map[string]string{"nvidia.com/gpu.product": h100, "nvidia.com/gpu.replicas": "1"},
			capacity: map[corev1.ResourceName]string{"nvidia.com/gpu": "4"}, replicas: 4,
		},
		"renamed": {
			labels: map[string]string{"nvidia.com/gpu.product": h100, "nvidia.com/gpu.replicas": "2",
				"nvidia.com/gpu.sharing-strategy": "time-slicing"},
			capacity: map[corev1.ResourceName]string{"nvidia.com/gpu.shared": "2"},
			want:     "nvidia.com/gpu.shared: 1 x 2 shared = 2",
		},
		"before it is discovered": {
			labels:   map[string]string{"nvidia.com/gpu.sharing-strategy": "mps"},
			capacity: map[corev1.ResourceName]string{"nvidia.com/gpu": "10"},
			want:     "nvidia.com/gpu: 10",
		},
		"MIG single": {
			labels:   map[string]string{"nvidia.com/gpu.product": h100 + "-MIG-1g.10gb", "nvidia.com/gpu.replicas": "1"},
			capacity: map[corev1.ResourceName]string{"nvidia.com/gpu": "7"},
			want:     "nvidia.com/gpu: 7 (NVIDIA-H100-80GB-HBM3-MIG-1g.10gb)",
		},
		"MIG mixed, one kind shared": {
			labels: map[string]string{"nvidia.com/gpu.product": h100, "nvidia.com/mig-2g.20gb.replicas": "2",
				"nvidia.com/mig-2g.20gb.count": "2", "nvidia.com/mig-3g.40gb.count": "1"},
			capacity: map[corev1.ResourceName]string{"nvidia.com/mig-3g.40gb": "1", "nvidia.com/mig-2g.20gb": "4"},
			want:     "nvidia.com/mig-2g.20gb: 2 x 2 shared = 4, nvidia.com/mig-3g.40gb: 1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			resources := corev1.ResourceList{}
			for resourceName, count := range test.capacity {
				resources[resourceName] = resource.MustParse(count)
			}
			node := &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Labels: test.labels},
				Status:     corev1.NodeStatus{Capacity: resources, Allocatable: resources},
			}
			if got := readiness.Offer(node, test.replicas); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			const suffix = ", by another device plugin: not validated"
			if foreign := readiness.ForeignOffer(node); strings.HasSuffix(foreign, suffix) != (test.capacity != nil) {
				t.Errorf("of another device plugin: got %q", foreign)
			}
			node.Status.Allocatable = nil
			if foreign := readiness.ForeignOffer(node); foreign != "" {
				t.Errorf("of another device plugin without GPUs: got %q", foreign)
			}
		})
	}
}
