package overview_test

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterpolicy/gpu-operator/internal/cli/overview"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
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

// Of pods that have ended or have no GPU, and of nodes that are gone, nothing stays: a watch may last as long as an
// autoscaled cluster has had thousands of nodes.
func TestUsageForgets(t *testing.T) {
	g := NewWithT(t)
	usage := &overview.Usage{}
	usage.Set(podWithGPU("first", "first"))
	before := heap.Live()
	for i := range 10000 {
		uid, node := fmt.Sprint("pod-", i), fmt.Sprint("node-", i)
		usage.Set(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}, Spec: corev1.PodSpec{NodeName: node}})
		g.Expect(usage.Of(node, labels.ResourceGPU)).To(BeZero())
		usage.Set(podWithGPU(uid+"-gpu", node))
		g.Expect(usage.Of(node, labels.ResourceGPU)).To(BeEquivalentTo(1))
		usage.Delete(types.UID(uid + "-gpu"))
	}
	g.Expect(heap.Live()-before).To(BeNumerically("<", 100<<10), "bytes that are kept of 10,000 pods and nodes")
	g.Expect(usage.Of("first", labels.ResourceGPU)).To(BeEquivalentTo(1))
	usage.Delete("first")
	g.Expect(usage.Of("first", labels.ResourceGPU)).To(BeZero())
}

// Of the devices that a plugin offers, pods have what they request, unless the scheduler has mapped it to a claim.
func TestUsageByResource(t *testing.T) {
	const implied = "deviceclass.resource.kubernetes.io/gpu.nvidia.com"
	for name, test := range map[string]struct {
		resource corev1.ResourceName
		mapped   bool
		want     int64
	}{
		"a plain request":               {resource: "nvidia.com/gpu", want: 1},
		"a share":                       {resource: "nvidia.com/gpu.shared", want: 1},
		"a MIG device":                  {resource: "nvidia.com/mig-1g.10gb", want: 1},
		"mapped by a DeviceClass":       {resource: "nvidia.com/gpu", mapped: true},
		"a MIG device that is mapped":   {resource: "nvidia.com/mig-1g.10gb", mapped: true},
		"what a DeviceClass implies":    {resource: implied, mapped: true},
		"a resource of another vendor":  {resource: "example.com/fast"},
		"one of another vendor, mapped": {resource: "example.com/fast", mapped: true},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podWithGPU("pod", "a")
			pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{test.resource: resource.MustParse("1")}
			if test.mapped {
				pod.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{
					RequestMappings: []corev1.ContainerExtendedResourceRequest{{ResourceName: string(test.resource)}},
				}
			}
			usage := &overview.Usage{}
			usage.Set(pod)
			NewWithT(t).Expect(usage.Of("a", test.resource)).To(Equal(test.want))
		})
	}
	NewWithT(t).Expect(overview.GPURequests(&corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{implied: resource.MustParse("2")}},
	}}}})).To(Equal(overview.Requests{implied: 2}))
}
