package node

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/assess"
	"github.com/clusterpolicy/gpu-operator/internal/effective"
	"github.com/clusterpolicy/gpu-operator/internal/events"
	"github.com/clusterpolicy/gpu-operator/internal/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/metrics"
	"github.com/clusterpolicy/gpu-operator/internal/observe"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operands"
	"github.com/clusterpolicy/gpu-operator/internal/plan"
)

// rig is a Reconciler at an API server that has the node "a", on which everything works.
type rig struct {
	*WithT
	t          *testing.T
	client     client.Client
	clock      *clocktesting.FakePassiveClock
	fleet      *fleet.Fleet
	reconciler *Reconciler
	spec       v1.ClusterPolicySpec
	// refuses is what the API server answers to writes to Nodes; nil lets them pass.
	refuses error
	// conditions counts the writes of conditions.
	conditions int
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{WithT: NewWithT(t), t: t, clock: clocktesting.NewFakePassiveClock(now), fleet: fleet.New()}
	catalogue, err := operands.Catalogue()
	r.Expect(err).NotTo(HaveOccurred())
	builder := fake.NewClientBuilder().WithStatusSubresource(&corev1.Node{}).
		WithIndex(&corev1.Pod{}, observe.PodNodeField, observe.IndexPodNode).
		WithObjects(&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "a", CreationTimestamp: metav1.NewTime(now), Labels: map[string]string{
				labels.DiscoveryPCIPresent: labels.True, labels.DiscoveryOSID: "ubuntu", labels.DiscoveryOSVersion: "24.04",
			}},
			Status: corev1.NodeStatus{
				NodeInfo:    corev1.NodeSystemInfo{Architecture: "amd64", ContainerRuntimeVersion: "containerd://2.2.1"},
				Allocatable: corev1.ResourceList{labels.ResourceGPU: resource.MustParse("8")},
				Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			},
		}).
		WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
				if r.refuses != nil {
					return r.refuses
				}
				return c.Patch(ctx, object, patch, options...)
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, name string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
				r.conditions++
				if r.refuses != nil {
					return r.refuses
				}
				return c.SubResource(name).Patch(ctx, object, patch, options...)
			},
		})
	for _, o := range catalogue {
		if len(o.Workloads) > 0 || o.Discovers {
			builder = builder.WithObjects(&corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: string(o.Name), Namespace: "gpu-operator", Labels: map[string]string{labels.Operand: string(o.Name)}},
				Spec:       corev1.PodSpec{NodeName: "a"},
				Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
					{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionTrue},
				}},
			})
		}
	}
	r.client = builder.Build()
	r.reconciler = New(Options{
		Client: r.client, Live: r.client, Catalogue: catalogue, Namespace: "gpu-operator", Fleet: r.fleet, Clock: r.clock,
		Events: events.NewRecorder(r.client, r.clock, func(string) {}), Meter: metrics.New(r.clock), Timing: DefaultTiming(),
	})
	return r
}

// publish has nodes be assessed by the spec of the rig.
func (r *rig) publish() {
	in := operand.Input{Spec: effective.Of(r.spec), Namespace: "gpu-operator", HelperImage: "example.com/gpu-operator:v1"}
	r.fleet.Publish(fleet.Basis{Policy: &v1.ClusterPolicy{Spec: r.spec}, Decisions: plan.Decide(r.reconciler.Catalogue, in)}, r.clock.Now())
}

// after has so much time pass, and the node be reconciled then.
func (r *rig) after(d time.Duration) (time.Duration, error) {
	r.t.Helper()
	r.clock.SetTime(r.clock.Now().Add(d))
	result, err := r.reconciler.Reconcile(r.t.Context(), named("a"))
	return result.RequeueAfter, err
}

// pod changes the status of an operand's pod.
func (r *rig) pod(name string, change func(*corev1.PodStatus)) {
	r.t.Helper()
	pod := &corev1.Pod{}
	r.Expect(r.client.Get(r.t.Context(), client.ObjectKey{Namespace: "gpu-operator", Name: name}, pod)).To(Succeed())
	change(&pod.Status)
	r.Expect(r.client.Status().Update(r.t.Context(), pod)).To(Succeed())
}

func starts(status *corev1.PodStatus) {
	status.Conditions[1].Status = corev1.ConditionFalse
	status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
}

func crashes(status *corev1.PodStatus) {
	status.Conditions[1].Status = corev1.ConditionFalse
	status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}}}
}

// works has an operand's pod be ready from now on.
func (r *rig) works(name string) {
	r.t.Helper()
	r.pod(name, func(status *corev1.PodStatus) {
		status.Conditions[1].Status, status.Conditions[1].LastTransitionTime = corev1.ConditionTrue, metav1.NewTime(r.clock.Now())
		status.ContainerStatuses = nil
	})
}

func (r *rig) node() *corev1.Node {
	r.t.Helper()
	node := &corev1.Node{}
	r.Expect(r.client.Get(r.t.Context(), client.ObjectKey{Name: "a"}, node)).To(Succeed())
	return node
}

// reported is the condition of the node, as status and reason; empty for none.
func (r *rig) reported() string {
	r.t.Helper()
	condition := assess.GPUReadyCondition(r.node())
	if condition == nil {
		return ""
	}
	return string(condition.Status) + " " + condition.Reason
}

// eventReasons are the reasons of the Events of the node.
func (r *rig) eventReasons() []string {
	r.t.Helper()
	list := &corev1.EventList{}
	r.Expect(r.client.List(r.t.Context(), list)).To(Succeed())
	var reasons []string
	for i := range list.Items {
		reasons = append(reasons, list.Items[i].Reason)
	}
	return reasons
}
