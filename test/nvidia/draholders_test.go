//go:build linux

package nvidia

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade/gpuuse"
	"github.com/clusterpolicy/gpu-operator/test/nvidia/dra"
)

const (
	// ownClass is a DeviceClass of a user.
	ownClass = "big-gpu"
	// monitors is a namespace that may have admin access, templates the one of each class.
	monitors = "monitors"
	monitor  = "monitor"
)

// holder is a pod that gets a GPU in one of the ways that there are, and the use that the operator must see.
type holder struct {
	name, namespace string
	// template is that of its claim, extended the resource that its container requests in place of one.
	template string
	extended corev1.ResourceName
	use      gpuuse.Use
}

var holders = []holder{
	{name: "claim", namespace: metav1.NamespaceDefault, template: dra.Driver, use: gpuuse.Held},
	{name: "own-class", namespace: metav1.NamespaceDefault, template: ownClass, use: gpuuse.Held},
	{name: "implied", namespace: metav1.NamespaceDefault, use: gpuuse.Held,
		extended: "deviceclass.resource.kubernetes.io/gpu.nvidia.com"},
	{name: "mapped", namespace: metav1.NamespaceDefault, extended: "nvidia.com/gpu", use: gpuuse.Held},
	{name: monitor, namespace: monitors, template: monitor, use: gpuuse.None},
}

// The scheduler allocates the GPUs of the real slices, and the operator must judge each pod by that.
func seesWhoHoldsGPUs(t *testing.T, c *draCluster) {
	g := NewWithT(t)
	o := c.offer(newMachine(t, h100))
	o.createTemplates()
	for i := range holders {
		// A pod is refused until its namespace has a ServiceAccount.
		g.Eventually(func() error {
			_, err := c.client.CoreV1().Pods(holders[i].namespace).Create(t.Context(), holders[i].pod(o.node),
				metav1.CreateOptions{})
			return err
		}, "30s", "100ms").Should(Succeed())
	}
	live, err := client.New(c.Config, client.Options{})
	g.Expect(err).NotTo(HaveOccurred())
	held := map[string]string{}
	for i := range holders {
		h := &holders[i]
		pod := o.scheduled(h)
		claims := gpuuse.ClaimsOf(pod)
		g.Expect(claims).To(HaveLen(1), h.name)
		claim, err := c.client.ResourceV1().ResourceClaims(h.namespace).Get(t.Context(), claims[0], metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		for _, device := range claim.Status.Allocation.Devices.Results {
			g.Expect(device).To(And(HaveField("Driver", dra.Driver), HaveField("Pool", o.node)), h.name)
			g.Expect(o.devices(g)).To(HaveKey(device.Device))
			if h.use == gpuuse.Held {
				g.Expect(held).NotTo(HaveKey(device.Device), h.name)
				held[device.Device] = h.name
			}
		}
		known := observe.NewGPUClaims(live)
		g.Expect(gpuuse.Of(pod, "nvidia", known.Assumed(t.Context()))).To(Equal(h.use), h.name)
		certain, failed := known.Certain(t.Context())
		g.Expect(gpuuse.Of(pod, "nvidia", certain)).To(Equal(h.use), h.name)
		g.Expect(failed()).To(Succeed(), h.name)
	}
	g.Expect(held).To(HaveLen(h100.gpus), "each GPU has one holder")
	o.knowsAll()
}

// createTemplates creates what the holders' claims are made from.
func (o *offering) createTemplates() {
	g := NewWithT(o.t)
	api := o.cluster.client.ResourceV1()
	_, err := api.DeviceClasses().Create(o.t.Context(), &resourcev1.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: ownClass},
		Spec: resourcev1.DeviceClassSpec{Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{
			Expression: `device.driver == "gpu.nvidia.com" && ` +
				`device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("40Gi")) > 0`,
		}}}},
	}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = o.cluster.client.CoreV1().Namespaces().Create(o.t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: monitors, Labels: map[string]string{
			"resource.kubernetes.io/admin-access": "true",
		}},
	}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	for i := range holders {
		if holders[i].template == "" {
			continue
		}
		request := resourcev1.ExactDeviceRequest{DeviceClassName: holders[i].template}
		if holders[i].use == gpuuse.None {
			request = resourcev1.ExactDeviceRequest{
				DeviceClassName: dra.Driver, AllocationMode: resourcev1.DeviceAllocationModeAll, AdminAccess: new(true),
			}
		}
		_, err := api.ResourceClaimTemplates(holders[i].namespace).Create(o.t.Context(), &resourcev1.ResourceClaimTemplate{
			ObjectMeta: metav1.ObjectMeta{Name: holders[i].template},
			Spec: resourcev1.ResourceClaimTemplateSpec{Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
				Requests: []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &request}},
			}}},
		}, metav1.CreateOptions{})
		g.Expect(err).NotTo(HaveOccurred())
	}
}

func (h *holder) pod(node string) *corev1.Pod {
	container := corev1.Container{Name: "work", Image: "example.com/work:1"}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: h.name},
		Spec:       corev1.PodSpec{NodeSelector: map[string]string{corev1.LabelHostname: node}},
	}
	if h.template == "" {
		container.Resources.Limits = corev1.ResourceList{h.extended: resource.MustParse("1")}
	} else {
		pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: &h.template}}
		container.Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
	}
	pod.Spec.Containers = []corev1.Container{container}
	return pod
}

// scheduled waits until the pod is on its node, and returns it.
func (o *offering) scheduled(h *holder) (pod *corev1.Pod) {
	o.t.Helper()
	NewWithT(o.t).Eventually(func(g Gomega) {
		var err error
		pod, err = o.cluster.client.CoreV1().Pods(h.namespace).Get(o.t.Context(), h.name, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(pod.Spec.NodeName).To(Equal(o.node), "%s: %+v", h.name, pod.Status)
	}).WithTimeout(patience).WithPolling(50 * time.Millisecond).Should(Succeed())
	return pod
}
