package node

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

const sevenSmall = "all-1g.10gb"

// newLayoutEnv returns an env whose node supports MIG and has no layout yet; the policy has the default layout.
func newLayoutEnv(t *testing.T, layout string) *env {
	t.Helper()
	e := newEnv(t)
	e.spec.MIGManager = &v1.MIGManagerSpec{Config: &v1.MIGManagerConfigSpec{Default: new(layout)}}
	e.updateNode(func(node *corev1.Node) { node.Labels[labels.MIGCapable] = labels.True })
	e.publish()
	return e
}

func (e *env) updateNode(change func(*corev1.Node)) {
	e.t.Helper()
	node := e.node()
	change(node)
	e.Expect(e.client.Update(e.t.Context(), node)).To(Succeed())
	status := e.node()
	change(status)
	e.Expect(e.client.Status().Update(e.t.Context(), status)).To(Succeed())
}

// createTenant creates a pod that uses a GPU of the node.
func (e *env) createTenant() *corev1.Pod {
	e.t.Helper()
	gpu := corev1.ResourceList{labels.ResourceGPU: resource.MustParse("1")}
	tenant := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "tenant", Namespace: "default"},
		Spec: corev1.PodSpec{NodeName: "a", Containers: []corev1.Container{
			{Name: "main", Resources: corev1.ResourceRequirements{Limits: gpu, Requests: gpu}},
		}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	e.Expect(e.client.Create(e.t.Context(), tenant)).To(Succeed())
	return tenant
}

// layoutAfter reconciles the node after this time, and returns the layout that is requested then.
func (e *env) layoutAfter(wait time.Duration) string {
	e.t.Helper()
	_, err := e.reconcileAfter(wait)
	e.Expect(err).NotTo(HaveOccurred())
	return e.node().Labels[labels.MIGConfig]
}

// A node with GPUs that no pod uses gets its first layout without a turn, whether they are advertised or not.
func TestFirstLayoutOfAnUnusedNode(t *testing.T) {
	for name, capacity := range map[string]string{"before the GPUs are advertised": "0", "after": "8"} {
		t.Run(name, func(t *testing.T) {
			e := newLayoutEnv(t, sevenSmall)
			e.updateNode(advertises(capacity))
			e.Expect(e.layoutAfter(0)).To(Equal(sevenSmall))
		})
	}
}

// A node keeps its GPUs as they are while a pod uses them, also when a kubelet that was restarted knows none yet.
func TestFirstLayoutOfABusyNode(t *testing.T) {
	e := newLayoutEnv(t, sevenSmall)
	tenant := e.createTenant()
	e.updateNode(advertises("8"))
	e.Expect(e.layoutAfter(0)).To(BeEmpty(), "a pod uses a GPU")
	e.updateNode(advertises("0"))
	e.Expect(e.layoutAfter(time.Second)).To(BeEmpty(), "the kubelet restarts")
	e.Expect(e.layoutAfter(10*time.Minute)).To(BeEmpty(), "the device plugin does not work")

	e.Expect(e.client.Delete(t.Context(), tenant)).To(Succeed())
	e.Expect(e.layoutAfter(DefaultTiming().MaxRetryTenants)).To(Equal(sevenSmall))
}

// A layout that leaves the GPUs whole disturbs no pod. One that ends the partitioning does.
func TestFirstLayoutThatDisablesMIG(t *testing.T) {
	e := newLayoutEnv(t, labels.MIGAllDisabled)
	e.createTenant()
	e.Expect(e.layoutAfter(0)).To(Equal(labels.MIGAllDisabled))

	e = newLayoutEnv(t, labels.MIGAllDisabled)
	e.createTenant()
	e.updateNode(func(node *corev1.Node) { node.Labels[labels.ResourceMIGPrefix+"1g.10gb.count"] = "7" })
	e.Expect(e.layoutAfter(0)).To(BeEmpty())
}

// An upgrade of the driver ends first.
func TestFirstLayoutWaitsForAnUpgrade(t *testing.T) {
	e := newLayoutEnv(t, sevenSmall)
	e.updateNode(func(node *corev1.Node) { node.Labels[labels.UpgradeState] = "drain-required" })
	e.Expect(e.layoutAfter(0)).To(BeEmpty())
}

// advertises changes how many GPUs the kubelet advertises.
func advertises(gpus string) func(*corev1.Node) {
	return func(node *corev1.Node) {
		resources := corev1.ResourceList{labels.ResourceGPU: resource.MustParse(gpus)}
		node.Status.Capacity, node.Status.Allocatable = resources, resources
	}
}

// The pods that a layout waits for are read less often with time, and not while nothing may be written.
func TestTenantsAreReadSeldom(t *testing.T) {
	e := newLayoutEnv(t, sevenSmall)
	live := &podReads{Reader: e.reconciler.Live}
	e.reconciler.Live = live
	e.createTenant()
	e.updateNode(advertises("8"))
	readsIn := func(hours int) int {
		before := live.count
		for range hours * 360 {
			e.Expect(e.layoutAfter(10 * time.Second)).To(BeEmpty())
		}
		return live.count - before
	}
	e.Expect(readsIn(1)).To(BeNumerically("<=", 12))
	e.Expect(readsIn(1)).To(And(BeNumerically(">=", 5), BeNumerically("<=", 6)), "one in 10 minutes")
	e.spec.Paused = new(true)
	e.publish()
	e.Expect(readsIn(1)).To(BeZero())
}

// podReads counts the lists of pods that are read from the API server.
type podReads struct {
	client.Reader
	count int
}

func (r *podReads) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if _, isPods := list.(*corev1.PodList); isPods {
		r.count++
	}
	return r.Reader.List(ctx, list, options...)
}
