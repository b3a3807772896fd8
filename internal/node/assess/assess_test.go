package assess_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

// Since comes from the previous assessment unless the readiness has changed or the time is unknown.
func TestSince(t *testing.T) {
	hourAgo := begin.Add(-time.Hour)
	tests := map[string]struct {
		ready    bool
		previous assess.ReadySince
		want     time.Time
	}{
		"ready, no previous assessment":     {ready: true, want: begin},
		"not ready, no previous assessment": {want: begin},
		"still ready": {
			ready:    true,
			previous: assess.ReadySince{Ready: true, Since: hourAgo},
			want:     hourAgo,
		},
		"still not ready":                    {previous: assess.ReadySince{Since: hourAgo}, want: hourAgo},
		"ready now":                          {ready: true, previous: assess.ReadySince{Since: hourAgo}, want: begin},
		"no longer ready":                    {previous: assess.ReadySince{Ready: true, Since: hourAgo}, want: begin},
		"still ready, since an unknown time": {ready: true, previous: assess.ReadySince{Ready: true}, want: begin},
		"ready now, previously not since an unknown time": {ready: true, previous: assess.ReadySince{}, want: begin},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			status := map[bool]corev1.ConditionStatus{true: corev1.ConditionTrue, false: corev1.ConditionFalse}[test.ready]
			got := assess.Node(assess.Input{
				NodePlan: plan.Decide(nil, operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{})}).ForNode(nodeinfo.Facts{
					Name:   "a",
					HasGPU: true,
				}),
				Node: &corev1.Node{
					ObjectMeta: metav1.ObjectMeta{Name: "a"},
					Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}},
				},
				Previous: test.previous, Now: begin,
			})
			g.Expect(got.Ready()).To(Equal(test.ready))
			g.Expect(got.Since).To(Equal(test.want))
			g.Expect(got.At).To(Equal(begin))
			g.Expect(got.ReadySince()).To(Equal(assess.ReadySince{Ready: test.ready, Since: test.want}))
		})
	}
}

// Of the pods of an operand, the youngest one counts that is not being deleted.
func TestPodsOfANode(t *testing.T) {
	pod := func(name string, age time.Duration, deleted bool) *corev1.Pod {
		found := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{labels.Operand: "driver"}, CreationTimestamp: metav1.NewTime(begin.Add(-age)),
		}}
		if deleted {
			found.DeletionTimestamp = &metav1.Time{Time: begin}
		}
		return found
	}
	for name, test := range map[string]struct {
		pods []*corev1.Pod
		want string
	}{
		"one":                     {[]*corev1.Pod{pod("a", 1, false)}, "a"},
		"one that is deleted":     {[]*corev1.Pod{pod("a", 1, true)}, "a"},
		"the younger":             {[]*corev1.Pod{pod("a", time.Minute, false), pod("b", 0, false)}, "b"},
		"the older":               {[]*corev1.Pod{pod("a", 0, false), pod("b", time.Minute, false)}, "a"},
		"of the same age":         {[]*corev1.Pod{pod("a", 0, false), pod("b", 0, false)}, "a"},
		"the younger is deleted":  {[]*corev1.Pod{pod("a", time.Minute, false), pod("b", 0, true)}, "a"},
		"the older is deleted":    {[]*corev1.Pod{pod("a", time.Minute, true), pod("b", 0, false)}, "b"},
		"the first is deleted":    {[]*corev1.Pod{pod("a", 0, true), pod("b", time.Minute, false)}, "b"},
		"both are deleted":        {[]*corev1.Pod{pod("a", time.Minute, true), pod("b", 0, true)}, "a"},
		"a pod of another origin": {[]*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "x"}}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			pods := assess.Pods{}
			for _, pod := range test.pods {
				pods.Add(pod)
			}
			got := ""
			for operand, pod := range pods {
				got = pod.Name
				if operand != "driver" || len(pods) != 1 {
					t.Errorf("got %v", pods)
				}
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestWhenAnEventWasLastSeen(t *testing.T) {
	at := func(after time.Duration) time.Time { return begin.Add(after) }
	series := func(after time.Duration) *corev1.EventSeries {
		return &corev1.EventSeries{LastObservedTime: metav1.NewMicroTime(at(after))}
	}
	for name, test := range map[string]struct {
		event corev1.Event
		want  time.Time
	}{
		"never": {},
		"by the last time": {
			corev1.Event{LastTimestamp: metav1.NewTime(at(1)), EventTime: metav1.NewMicroTime(at(0))}, at(1),
		},
		"by the event": {
			corev1.Event{EventTime: metav1.NewMicroTime(at(2)), LastTimestamp: metav1.NewTime(at(1))}, at(2),
		},
		"by the series":        {corev1.Event{EventTime: metav1.NewMicroTime(at(2)), Series: series(3)}, at(3)},
		"by an earlier series": {corev1.Event{EventTime: metav1.NewMicroTime(at(2)), Series: series(1)}, at(2)},
	} {
		if got := assess.LastSeen(&test.event); !got.Equal(test.want) {
			t.Errorf("%s: got %s, want %s", name, got, test.want)
		}
	}
}

// The conditions of a node and since when it is ready are read back.
func TestReadConditions(t *testing.T) {
	g := NewWithT(t)
	node := gpuNode(nil, nil)
	g.Expect(assess.GPUReadyCondition(node)).To(BeNil())
	g.Expect(assess.GPUHealthyCondition(node)).To(BeNil())
	healthy := corev1.NodeCondition{Type: labels.ConditionGPUHealthy, Status: corev1.ConditionFalse}
	for _, status := range []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown} {
		ready := corev1.NodeCondition{
			Type: labels.ConditionGPUReady, Status: status, LastTransitionTime: metav1.NewTime(begin),
		}
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady}, ready, healthy}
		g.Expect(*assess.GPUReadyCondition(node)).To(Equal(ready))
		g.Expect(*assess.GPUHealthyCondition(node)).To(Equal(healthy))
		g.Expect(assess.ReadySinceOf(&ready)).To(Equal(
			assess.ReadySince{Ready: status == corev1.ConditionTrue, Since: begin}))
	}
	g.Expect(assess.ReadySinceOf(nil)).To(Equal(assess.ReadySince{}))
}

// Before a node has discovery labels, the operands that discover GPUs are assessed, and no others.
func TestOperandsThatDiscover(t *testing.T) {
	g := NewWithT(t)
	in := stackNode()
	catalogue := operand.Catalogue{{Name: "driver"}, {Name: "mig-manager", Discovers: true},
		{Name: "none", Discovers: true}}
	outdate(in, "mig-manager")
	g.Expect(assess.DiscoveryOperands(catalogue, in.Pods, begin)).To(Equal(map[operand.Name]readiness.Verdict{
		"mig-manager": {},
	}))
	unready(in, "mig-manager", 0)
	g.Expect(assess.DiscoveryOperands(catalogue, in.Pods, begin)["mig-manager"].Reason).To(Equal(v1.ReasonStarting))
	g.Expect(assess.DiscoveryOperands(catalogue[:1], in.Pods, begin)).To(BeNil())

	g.Expect(in.Stack.IsCurrent(in.Pods["driver"])).To(BeTrue())
	g.Expect(in.Stack.IsCurrent(in.Pods["mig-manager"])).To(BeFalse())
	delete(in.Stack.DaemonSets, "ds-driver")
	g.Expect(in.Stack.IsCurrent(in.Pods["driver"])).To(BeFalse())
	g.Expect(in.Stack.IsCurrent(&corev1.Pod{})).To(BeFalse())
}
