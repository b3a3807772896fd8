package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/kube/events"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/status/metrics"
)

// env is a Reconciler and a fake API server with the node "a", on which everything works.
type env struct {
	*WithT
	t          *testing.T
	client     client.Client
	clock      *clocktesting.FakePassiveClock
	fleet      *fleet.Fleet
	reconciler *Reconciler
	spec       v1.ClusterPolicySpec
	// patchErr is the API server's answer to writes of Nodes; nil accepts them.
	patchErr error
	// fails has the API server's answer to other calls: a get, a list, a delete or an eviction; nil lets them through.
	fails map[string]error
	// writes counts writes of Nodes, and conditionWrites those of the condition among them.
	writes, conditionWrites int
}

func newEnv(t *testing.T) *env {
	t.Helper()
	e := &env{WithT: NewWithT(t), t: t, clock: clocktesting.NewFakePassiveClock(now), fleet: fleet.New()}
	catalogue, err := operands.Catalogue()
	e.Expect(err).NotTo(HaveOccurred())
	// Not all of Kubernetes: with each write the fake client lists the types.
	types := runtime.NewScheme()
	e.Expect(errors.Join(corev1.AddToScheme(types), policyv1.AddToScheme(types))).To(Succeed())
	builder := fake.NewClientBuilder().WithScheme(types).WithStatusSubresource(&corev1.Node{}).
		WithIndex(&corev1.Pod{}, observe.PodNodeField, observe.IndexPodNode).
		WithIndex(&corev1.Pod{}, observe.PodPhaseField, func(object client.Object) []string {
			pod, _ := object.(*corev1.Pod)
			return []string{string(pod.Status.Phase)}
		}).
		WithObjects(&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "a", CreationTimestamp: metav1.NewTime(now), Labels: map[string]string{
				labels.DiscoveryPCIPresent: labels.True, labels.DiscoveryOSID: "ubuntu", labels.DiscoveryOSVersion: "24.04",
			}},
			Status: corev1.NodeStatus{
				NodeInfo: corev1.NodeSystemInfo{
					Architecture:            "amd64",
					ContainerRuntimeVersion: "containerd://2.2.1",
				},
				Allocatable: corev1.ResourceList{labels.ResourceGPU: resource.MustParse("8")},
				Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			},
		}).
		WithInterceptorFuncs(interceptor.Funcs{
			Get: func(
				ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption,
			) error {
				return cmp.Or(e.fails["get"], c.Get(ctx, key, object, options...))
			},
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				return cmp.Or(e.fails["list"], c.List(ctx, list, options...))
			},
			Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
				if err := e.fails["delete"]; err != nil {
					return err
				}
				return c.Delete(ctx, object, options...)
			},
			Patch: func(
				ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption,
			) error {
				e.writes++
				if e.patchErr != nil {
					return e.patchErr
				}
				return c.Patch(ctx, object, patch, options...)
			},
			SubResourceCreate: func(
				ctx context.Context, c client.Client, name string, object, body client.Object,
				options ...client.SubResourceCreateOption,
			) error {
				if err := e.fails["evict"]; err != nil {
					return err
				}
				pod := &corev1.Pod{}
				e.Expect(c.Get(ctx, client.ObjectKeyFromObject(object), pod)).To(Succeed())
				e.Expect(body).To(HaveField("DeleteOptions.Preconditions",
					Equal(&metav1.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion})))
				return c.SubResource(name).Create(ctx, object, body, options...)
			},
			SubResourcePatch: func(
				ctx context.Context, c client.Client, name string, object client.Object, patch client.Patch,
				options ...client.SubResourcePatchOption,
			) error {
				e.writes++
				e.conditionWrites++
				if e.patchErr != nil {
					return e.patchErr
				}
				if err := c.SubResource(name).Patch(ctx, object, patch, options...); err != nil {
					return err
				}
				// As in the API server, where the status of a Node is written with its metadata.
				return c.Patch(ctx, object, patch)
			},
		})
	for _, o := range catalogue {
		if len(o.Workloads) > 0 || o.Discovers {
			builder = builder.WithObjects(&corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					Name:      string(o.Name),
					Namespace: "gpu-operator",
					Labels:    map[string]string{labels.Operand: string(o.Name)},
				},
				Spec: corev1.PodSpec{NodeName: "a"},
				Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
					{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
					{Type: corev1.PodReady, Status: corev1.ConditionTrue},
				}},
			})
		}
	}
	e.client = builder.Build()
	e.reconciler = New(Options{
		Client: e.client, Live: stampingReader{e.client}, Catalogue: catalogue, Namespace: "gpu-operator",
		Fleet: e.fleet, Clock: e.clock,
		Events: events.NewRecorder(e.client, e.clock, func(string) {}), Meter: metrics.New(e.clock), Timing: DefaultTiming(),
	})
	return e
}

// publish publishes a Basis with the spec of the env.
func (e *env) publish() {
	in := operand.Input{
		Spec:          effective.Of(e.spec),
		Namespace:     "gpu-operator",
		OperatorImage: "example.com/gpu-operator:v1",
	}
	e.fleet.Publish(
		fleet.Basis{Policy: &v1.ClusterPolicy{Spec: e.spec}, Decisions: plan.Decide(e.reconciler.Catalogue, in)},
		e.clock.Now(),
	)
}

// reconcileAfter advances the clock and reconciles the node. It returns RequeueAfter.
func (e *env) reconcileAfter(d time.Duration) (time.Duration, error) {
	e.t.Helper()
	e.clock.SetTime(e.clock.Now().Add(d))
	result, err := e.reconciler.Reconcile(e.t.Context(), requestFor("a"))
	return result.RequeueAfter, err
}

// setPod changes the status of an operand's pod.
func (e *env) setPod(name string, change func(*corev1.PodStatus)) {
	e.t.Helper()
	pod := &corev1.Pod{}
	e.Expect(e.client.Get(e.t.Context(), client.ObjectKey{Namespace: "gpu-operator", Name: name}, pod)).To(Succeed())
	change(&pod.Status)
	e.Expect(e.client.Status().Update(e.t.Context(), pod)).To(Succeed())
}

func starts(status *corev1.PodStatus) {
	status.Conditions[1].Status = corev1.ConditionFalse
	status.ContainerStatuses = []corev1.ContainerStatus{
		{Name: "main", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
	}
}

func crashes(status *corev1.PodStatus) {
	status.Conditions[1].Status = corev1.ConditionFalse
	status.ContainerStatuses = []corev1.ContainerStatus{
		{Name: "main", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}},
	}
}

// makeReady makes an operand's pod ready as of now.
func (e *env) makeReady(name string) {
	e.t.Helper()
	e.setPod(name, func(status *corev1.PodStatus) {
		status.Conditions[1].Status = corev1.ConditionTrue
		status.Conditions[1].LastTransitionTime = metav1.NewTime(e.clock.Now())
		status.ContainerStatuses = nil
	})
}

func (e *env) node() *corev1.Node {
	e.t.Helper()
	node := &corev1.Node{}
	e.Expect(e.client.Get(e.t.Context(), client.ObjectKey{Name: "a"}, node)).To(Succeed())
	return node
}

// reported returns status and reason of the condition, or "" if there is none.
func (e *env) reported() string {
	e.t.Helper()
	condition := assess.GPUReadyCondition(e.node())
	if condition == nil {
		return ""
	}
	return string(condition.Status) + " " + condition.Reason
}

func (e *env) eventReasons() []string {
	e.t.Helper()
	list := &corev1.EventList{}
	e.Expect(e.client.List(e.t.Context(), list)).To(Succeed())
	var reasons []string
	for i := range list.Items {
		reasons = append(reasons, list.Items[i].Reason)
	}
	return reasons
}

// events returns type, reason, object and message of the Events.
func (e *env) events() []string {
	e.t.Helper()
	list := &corev1.EventList{}
	e.Expect(e.client.List(e.t.Context(), list)).To(Succeed())
	var found []string
	for i := range list.Items {
		event := &list.Items[i]
		of := event.InvolvedObject
		found = append(found, fmt.Sprintf("%s %s of %s %s %s %s: %s",
			event.Type, event.Reason, of.APIVersion, of.Kind, of.Name, of.UID, event.Message))
	}
	return found
}

// scope returns that of a reconcile of the node now, with a UID, after a change of what it has read.
func (e *env) scope(change func(*scope)) *scope {
	e.t.Helper()
	s, err := e.reconciler.newScope(e.t.Context(), "a")
	e.Expect(err).NotTo(HaveOccurred())
	s.node.UID = "u"
	if s.basis == nil {
		s.basis = &fleet.Basis{}
	}
	change(s)
	return s
}

// condition returns the condition of this type, with its times in UTC; zero if there is none.
func (e *env) condition(kind corev1.NodeConditionType) corev1.NodeCondition {
	e.t.Helper()
	found := readiness.NodeCondition(e.node(), kind)
	if found == nil {
		return corev1.NodeCondition{}
	}
	found.LastHeartbeatTime = metav1.NewTime(found.LastHeartbeatTime.UTC())
	found.LastTransitionTime = metav1.NewTime(found.LastTransitionTime.UTC())
	return *found
}

// putCondition adds a condition to the node, or replaces it.
func (e *env) putCondition(condition corev1.NodeCondition) {
	e.t.Helper()
	e.updateNode(func(node *corev1.Node) {
		node.Status.Conditions = append(slices.DeleteFunc(node.Status.Conditions,
			func(of corev1.NodeCondition) bool { return of.Type == condition.Type }), condition)
	})
}

// plans makes this the plan of the node.
func (s *scope) plans(planned plan.NodePlan) *scope {
	s.entry.Planned = &fleet.PlannedNode{Inputs: s.planInputs(), NodePlan: planned}
	return s
}
