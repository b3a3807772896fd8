package overview_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/overview"
)

func quantities(offers map[string]int64) corev1.ResourceList {
	list := corev1.ResourceList{}
	for name, count := range offers {
		list[corev1.ResourceName(name)] = *resource.NewQuantity(count, resource.DecimalSI)
	}
	return list
}

func node(name string, ready corev1.ConditionStatus, reason, message string, offers map[string]int64) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	n.Status.Allocatable, n.Status.Capacity = quantities(offers), quantities(offers)
	if reason != "" {
		n.Status.Conditions = []corev1.NodeCondition{{
			Type: "nvidia.com/GPUReady", Status: ready, Reason: reason, Message: name + ": " + message,
		}}
	}
	return n
}

func pod(uid, on string, requests map[string]int64) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}, Spec: corev1.PodSpec{NodeName: on}}
	p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: quantities(requests)}}}
	return p
}

// The nodes that are not ready come first, GPUs of all are counted, and only whole ones as free.
func TestOverview(t *testing.T) {
	g := NewWithT(t)
	shared := node("shared", corev1.ConditionTrue, "GPUReady", "GPUs can be used", map[string]int64{"nvidia.com/gpu": 16})
	shared.Labels = map[string]string{
		"nvidia.com/gpu.count": "4", "nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": "time-slicing",
		"nvidia.com/gpu.product": "NVIDIA-H100-SHARED", "nvidia.com/cuda.driver.major": "580",
		"nvidia.com/cuda.driver.minor": "95", "nvidia.com/cuda.driver.rev": "05",
	}
	whole := node("whole", corev1.ConditionTrue, "GPUReady", "GPUs can be used", map[string]int64{"nvidia.com/gpu": 8})
	whole.Labels["nvidia.com/cuda.driver-version.full"] = "590.1"
	mig := node("mig", corev1.ConditionTrue, "UpgradePending", "GPUs can be used; driver outdated",
		map[string]int64{"nvidia.com/mig-1g.10gb": 7, "nvidia.com/mig-2g.20gb": 1})
	mig.Labels["nvidia.com/mig.config"], mig.Labels["nvidia.com/mig.config.state"] = "mixed", "success"
	mig.Labels["nvidia.com/gpu.count"] = "1"
	nodes := []*corev1.Node{
		whole, shared, mig,
		node("excluded", corev1.ConditionFalse, "Excluded", "excluded by a label", nil),
		node("new", "", "", "", nil),
		node("broken", corev1.ConditionFalse, "CrashLoopBackOff", "stage Driver, operand driver: container x: crash", nil),
	}
	usage := &overview.Usage{}
	usage.Set(pod("1", "whole", map[string]int64{"nvidia.com/gpu": 3}))
	usage.Set(pod("1", "whole", map[string]int64{"nvidia.com/gpu": 3}))
	usage.Set(pod("2", "shared", map[string]int64{"nvidia.com/gpu": 1}))
	usage.Set(pod("3", "mig", map[string]int64{"nvidia.com/mig-1g.10gb": 2}))
	usage.Set(pod("4", "mig", map[string]int64{"nvidia.com/mig-2g.20gb": 1}))
	usage.Set(pod("5", "", map[string]int64{"nvidia.com/gpu": 1}))
	usage.Set(pod("6", "whole", map[string]int64{"cpu": 1}))
	usage.Delete("4")
	policies := []v1.ClusterPolicy{
		{ObjectMeta: metav1.ObjectMeta{Name: "ignored"}, Status: v1.ClusterPolicyStatus{State: v1.StateIgnored}},
		{ObjectMeta: metav1.ObjectMeta{Name: "active"}, Status: v1.ClusterPolicyStatus{
			State: v1.StateNotReady, Conditions: []metav1.Condition{{
				Type: v1.ConditionReady, Status: metav1.ConditionFalse, Reason: "OperandFailed", Message: "1 of 6",
			}},
		}},
	}
	got := overview.Of(overview.Cluster{Policies: policies, Nodes: nodes, Usage: usage})
	g.Expect(got.Policy).To(Equal(&overview.Policy{Name: "active", Ready: "False", Reason: "OperandFailed",
		Message: "1 of 6"}))
	free := int64(5)
	g.Expect(got.Summary).To(Equal(overview.Summary{Nodes: 6, ReadyNodes: 3, GPUs: 13, UsableGPUs: 13, FreeGPUs: &free}))
	byName := map[string]overview.Node{}
	var names []string
	for _, n := range got.Nodes {
		byName[n.Name], names = n, append(names, n.Name)
	}
	g.Expect(names).To(Equal([]string{"broken", "new", "mig", "shared", "whole", "excluded"}))
	g.Expect(byName["broken"]).To(And(HaveField("Stage", v1.StageDriver), HaveField("Operand", "driver"),
		HaveField("Message", "container x: crash"), HaveField("GPUs", overview.GPUs{})))
	g.Expect(byName["shared"]).To(And(HaveField("Sharing", "time-slicing x4"), HaveField("Driver", "580.95.05"),
		HaveField("GPUs", overview.GPUs{Total: 4, Usable: 4})))
	g.Expect(byName["mig"]).To(And(HaveField("Reason", "UpgradePending"), HaveField("MIG", &overview.MIG{
		Layout: "mixed", State: "success",
	})))
	five, one := int64(5), int64(1)
	g.Expect(byName["mig"].Resources).To(Equal([]overview.Resource{
		{Name: "nvidia.com/mig-1g.10gb", Allocatable: 7, Free: &five}, {Name: "nvidia.com/mig-2g.20gb", Allocatable: 1,
			Free: &one},
	}))
	g.Expect(byName["whole"].Driver).To(Equal("590.1"))
	g.Expect(byName["excluded"].Ready).To(Equal(overview.Excluded))
	g.Expect(byName["new"]).To(And(HaveField("Ready", overview.Unknown), HaveField("Stage", v1.Stage(""))))
}

// Without the pods nothing is said about what is free, and without a policy nothing about it.
// Until the operator has acted on a policy, the oldest one counts, wherever it is in a list.
func TestActivePolicy(t *testing.T) {
	g := NewWithT(t)
	policy := func(name string, age time.Duration, state v1.State) v1.ClusterPolicy {
		return v1.ClusterPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(0, 0).Add(-age))},
			Status:     v1.ClusterPolicyStatus{State: state},
		}
	}
	g.Expect(overview.ActivePolicy(nil)).To(BeNil())
	young, old := policy("young", time.Minute, ""), policy("old", time.Hour, "")
	g.Expect(overview.ActivePolicy([]v1.ClusterPolicy{young, old}).Name).To(Equal("old"))
	g.Expect(overview.ActivePolicy([]v1.ClusterPolicy{old, young}).Name).To(Equal("old"))
	ignored, active := policy("ignored", 2*time.Hour, v1.StateIgnored), policy("active", time.Minute, v1.StateNotReady)
	g.Expect(overview.ActivePolicy([]v1.ClusterPolicy{ignored, active, old}).Name).To(Equal("active"))
}

func TestUnknown(t *testing.T) {
	g := NewWithT(t)
	got := overview.Of(overview.Cluster{Nodes: []*corev1.Node{
		node("a", corev1.ConditionTrue, "GPUReady", "", map[string]int64{"nvidia.com/gpu": 8}),
	}})
	g.Expect(got.Policy).To(BeNil())
	g.Expect(got.Summary.FreeGPUs).To(BeNil())
	g.Expect(got.Nodes[0].Resources).To(ConsistOf(HaveField("Free", BeNil())))
	empty := overview.Of(overview.Cluster{Policies: []v1.ClusterPolicy{{ObjectMeta: metav1.ObjectMeta{Name: "new"}}}})
	g.Expect(empty.Policy.Ready).To(Equal(metav1.ConditionUnknown))
	g.Expect(empty.Nodes).To(And(BeEmpty(), Not(BeNil())), "an empty list in JSON")
}
