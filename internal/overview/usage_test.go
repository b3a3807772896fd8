package overview_test

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/overview"
	"github.com/clusterpolicy/gpu-operator/test/heap"
)

// podWithGPU returns a running pod with one GPU of the node.
func podWithGPU(uid, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{labels.ResourceGPU: resource.MustParse("1")},
		}}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

// Of pods that have ended, and of nodes that are gone, nothing stays: a watch may last as long as an autoscaled cluster
// has had thousands of nodes.
func TestUsageForgets(t *testing.T) {
	g := NewWithT(t)
	usage := &overview.Usage{}
	usage.Set(podWithGPU("first", "first"))
	before := heap.Live()
	for i := range 10000 {
		uid, node := fmt.Sprint("pod-", i), fmt.Sprint("node-", i)
		usage.Set(podWithGPU(uid, node))
		g.Expect(usage.Of(node, labels.ResourceGPU)).To(BeEquivalentTo(1))
		usage.Delete(types.UID(uid))
	}
	g.Expect(heap.Live()-before).To(BeNumerically("<", 100<<10), "bytes that are kept of 10,000 pods and nodes")
	g.Expect(usage.Of("first", labels.ResourceGPU)).To(BeEquivalentTo(1))
	usage.Delete("first")
	g.Expect(usage.Of("first", labels.ResourceGPU)).To(BeZero())
}
