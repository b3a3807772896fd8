package node

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
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

// An upgrade of the driver ends first, and a drain gets the layout from the upgrade controller.
func TestFirstLayoutWaitsForAnUpgrade(t *testing.T) {
	for _, change := range []func(*corev1.Node){
		func(node *corev1.Node) { node.Labels[labels.UpgradeState] = "drain-required" },
		func(node *corev1.Node) { node.Annotations = map[string]string{labels.MIGDrain: "{}"} },
	} {
		e := newLayoutEnv(t, sevenSmall)
		e.updateNode(change)
		e.Expect(e.layoutAfter(0)).To(BeEmpty())
	}
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

// The pods that use the GPUs are read for each state of a layout, again while one waits for them, and before one is
// requested unless there were some a short time ago.
func TestTenantsAreRead(t *testing.T) {
	const wants, pending = "w", labels.MIGStatePending
	refused := errors.New("refused")
	pod := userPod(func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Resources.Limits, pod.Spec.RuntimeClassName = nil, new("gpus")
	})
	ago := func(since, at time.Duration, of string, pods ...string) fleet.Tenants {
		return fleet.Tenants{Of: of, Since: now.Add(-since), At: now.Add(-at), Pods: pods}
	}
	const second, minute = time.Second, time.Minute
	used := "team/training"
	for name, test := range map[string]struct {
		wanted, state    string
		paused, requests bool
		before, after    fleet.Tenants
		live             error
		lists            int
		again            time.Duration
	}{
		"no layout": {state: "success", before: ago(0, 0, "x")},
		"a state":   {state: pending, before: ago(minute, minute, "x", "y"), after: ago(0, 0, "l pending ", used), lists: 1},
		"a failed state, while paused": {
			state: labels.MIGStateFailed, paused: true, after: ago(0, 0, "l failed ", used), lists: 1,
		},
		"the same state": {
			state: pending, before: ago(time.Hour, time.Hour, "l pending "), after: ago(time.Hour, time.Hour, "l pending "),
		},
		"a layout": {
			wanted: wants, state: "success", after: ago(0, 0, "l success w", used), lists: 1, again: 30 * second,
		},
		"a layout, while paused": {wanted: wants, paused: true, before: ago(0, 0, "x"), after: ago(0, 0, "x")},
		"a layout, a short time later": {
			wanted: wants, before: ago(minute, 10*second, "l  w", used), after: ago(minute, 10*second, "l  w", used),
			again: 40 * second,
		},
		"a layout, in time": {
			wanted: wants, before: ago(2*minute, minute, "l  w", "x", used), after: ago(2*minute, 0, "l  w", used), lists: 1,
			again: 2 * minute,
		},
		"a layout, after long": {
			wanted: wants, before: ago(time.Hour, 10*minute, "l  w", "x"), after: ago(time.Hour, 0, "l  w", used), lists: 1,
			again: 10 * minute,
		},
		"a request": {
			wanted: wants, requests: true, before: ago(0, second, "l  w"), after: ago(0, 0, "l  w", used), lists: 1,
			again: 30 * second,
		},
		"a request, a short time later": {
			wanted: wants, requests: true, before: ago(second, second, "l  w", "x"), after: ago(second, second, "l  w", "x"),
			again: 29 * second,
		},
		"pods that cannot be read": {
			wanted: wants, before: ago(minute, minute, "l  w", "x"), after: ago(minute, minute, "l  w", "x"), live: refused,
			lists: 1, again: second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g, live := NewWithT(t), newReader(test.live, pod)
			s := &scope{
				Reconciler: New(Options{Live: live, Namespace: "gpu-operator", Timing: DefaultTiming()}), now: now,
				node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
				basis: &fleet.Basis{Decisions: plan.Decide(nil, operand.Input{
					Spec: effective.Of(v1.ClusterPolicySpec{Paused: &test.paused}),
				})},
			}
			planned := plan.NodePlan{
				Partitioner: "mig-manager", MIGWanted: test.wanted,
				Spec: effective.Of(v1.ClusterPolicySpec{Operator: &v1.OperatorSpec{RuntimeClass: "gpus"}}),
			}
			planned.Facts.Labels = map[string]string{labels.MIGConfig: "l", labels.MIGConfigState: test.state}
			s.plans(planned).entry.Writes.Tenants = test.before
			if name == "a request" {
				test.after.Since = test.before.Since
			}
			s.refreshTenants(t.Context(), test.requests)
			g.Expect(s.entry.Writes.Tenants).To(Equal(test.after))
			g.Expect(live.lists).To(Equal(test.lists))
			g.Expect(s.requeueAfter).To(Equal(test.again))
			g.Expect(s.isUnused()).To(Equal(test.after.At.Equal(now) && len(test.after.Pods) == 0))
			planned.Partitioner = ""
			g.Expect(tenantsOf(&planned)).To(BeEmpty())
		})
	}
}

// A pod that the report names stays there until it ends.
func TestNamedTenantsStay(t *testing.T) {
	for _, test := range []struct{ named, now, want []string }{
		{nil, []string{"a"}, []string{"a"}}, {[]string{"b", "c"}, []string{"a", "b"}, []string{"b"}},
		{[]string{"c"}, []string{"a"}, []string{"a"}}, {[]string{"c"}, nil, nil},
	} {
		NewWithT(t).Expect(stillNamed(test.named, test.now)).To(Equal(test.want))
	}
}
