package overview_test

import (
	"slices"
	"testing"

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
		node("excluded", corev1.ConditionFalse, "Excluded", "excluded by a label", map[string]int64{"nvidia.com/gpu": 8}),
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
	policy := &v1.ClusterPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "active", Generation: 2},
		Status: v1.ClusterPolicyStatus{Conditions: []metav1.Condition{{
			Type: v1.ConditionReady, Status: metav1.ConditionFalse, Reason: "OperandFailed", Message: "1 of 6",
			ObservedGeneration: 2,
		}}},
	}
	got := overview.Of(overview.Cluster{Policy: policy, Nodes: nodes, Usage: usage})
	g.Expect(got.Policy).To(Equal(&overview.Policy{Name: "active", Ready: "False", Reason: "OperandFailed",
		Message: "1 of 6"}))
	free := int64(5)
	g.Expect(got.Summary).To(Equal(overview.Summary{Nodes: 5, ReadyNodes: 3, GPUs: 13, UsableGPUs: 13, FreeGPUs: &free}))
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
func TestUnknown(t *testing.T) {
	g := NewWithT(t)
	got := overview.Of(overview.Cluster{Nodes: []*corev1.Node{
		node("a", corev1.ConditionTrue, "GPUReady", "", map[string]int64{"nvidia.com/gpu": 8}),
	}})
	g.Expect(got.Policy).To(BeNil())
	g.Expect(got.Summary.FreeGPUs).To(BeNil())
	g.Expect(got.Nodes[0].Resources).To(ConsistOf(HaveField("Free", BeNil())))
	empty := overview.Of(overview.Cluster{Policy: &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: "new"}}})
	g.Expect(empty.Policy.Ready).To(Equal(metav1.ConditionUnknown))
	g.Expect(empty.Nodes).To(And(BeEmpty(), Not(BeNil())), "an empty list in JSON")
}

// What the operator has reported about an earlier spec is not the state of the current one.
func TestEditedPolicy(t *testing.T) {
	g := NewWithT(t)
	policy := &v1.ClusterPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "edited", Generation: 3},
		Status: v1.ClusterPolicyStatus{Conditions: []metav1.Condition{{
			Type: v1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Reconciled", Message: "2 of 2 GPU nodes are ready",
			ObservedGeneration: 2,
		}}},
	}
	got := overview.Of(overview.Cluster{Policy: policy}).Policy
	g.Expect(got).To(And(HaveField("Ready", metav1.ConditionUnknown), HaveField("Reason", ""),
		HaveField("Message", ContainSubstring("before, it was Reconciled: 2 of 2"))))
}

// What stops or limits the operator shows whatever the condition Ready says, which another operator may write.
func TestLimitsOfAPolicy(t *testing.T) {
	const (
		outdated, missing = v1.ConditionCRDOutdated, v1.ConditionAdmissionPolicyMissing
		other             = v1.ConditionOtherOperatorRunning
		waits             = "False " + other + ": about " + other
	)
	for name, test := range map[string]struct {
		ready  string
		set    []string
		want   string
		limits []string
	}{
		"none":                         {ready: "Reconciled", want: "True Reconciled: about Ready"},
		"another operator":             {ready: "Reconciled", set: []string{other}, want: waits},
		"another operator, first seen": {ready: other, set: []string{other}, want: waits},
		"limits": {
			ready: "Reconciled", set: []string{outdated, missing}, want: "True Reconciled: about Ready",
			limits: []string{outdated, missing},
		},
		"another operator and a limit": {
			ready: "Reconciled", set: []string{outdated, other}, want: waits,
			limits: []string{outdated},
		},
		"a limit that Ready has": {ready: outdated, set: []string{outdated}, want: "True CRDOutdated: about Ready"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			policy := &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
			set := func(kind string, status metav1.ConditionStatus, reason string) {
				policy.Status.Conditions = append(policy.Status.Conditions,
					metav1.Condition{Type: kind, Status: status, Reason: reason, Message: "about " + kind})
			}
			set(v1.ConditionReady, metav1.ConditionTrue, test.ready)
			for _, kind := range []string{outdated, missing, other} {
				status := metav1.ConditionFalse
				if slices.Contains(test.set, kind) {
					status = metav1.ConditionTrue
				}
				set(kind, status, kind)
			}
			got := overview.Of(overview.Cluster{Policy: policy}).Policy
			g.Expect(string(got.Ready) + " " + got.Reason + ": " + got.Message).To(Equal(test.want))
			var limits []string
			for _, limit := range got.Limits {
				limits = append(limits, limit.Reason)
				g.Expect(limit.Message).To(Equal("about " + limit.Reason))
			}
			g.Expect(limits).To(Equal(test.limits))
		})
	}
}

// Shares are no GPUs, also before GPU Feature Discovery has labelled the node.
func TestGPUsOfANodeWithoutLabels(t *testing.T) {
	share := func(replicas int32) *v1.SharingSpec {
		return &v1.SharingSpec{TimeSlicing: &v1.TimeSlicingSpec{Replicas: replicas}}
	}
	policy := &v1.ClusterPolicy{Spec: v1.ClusterPolicySpec{
		Sharing: share(4), NodePools: []v1.NodePoolSpec{{Name: "two", Sharing: share(2)}},
	}}
	for pool, want := range map[string]int{"": 4, "two": 8} {
		n := node("a", "True", "GPUReady", "GPUs can be used", map[string]int64{"nvidia.com/gpu": 16})
		n.Labels["nvidia.com/gpu-operator.node-pool"] = pool
		got := overview.Of(overview.Cluster{Policy: policy, Nodes: []*corev1.Node{n}})
		NewWithT(t).Expect(got.Nodes[0].GPUs).To(Equal(overview.GPUs{Total: want, Usable: want}), pool)
	}
}

// GPUs that only resource claims get count as usable while the node is ready, also where another reason than GPUReady
// takes the place of the note about them.
func TestGPUsOfADRADriver(t *testing.T) {
	for name, test := range map[string]struct {
		ready           corev1.ConditionStatus
		reason, message string
		counted         int
	}{
		"noted": {"True", "GPUReady", "GPUs can be used; a DRA driver offers them by resource claims, which the operator " +
			"has not validated: DaemonSet dra/plugin", 8},
		"with a pending upgrade": {"True", "UpgradePending", "GPUs can be used; driver is outdated", 8},
		"not ready":              {"False", "NotAllocatable", "stage Allocatable: nothing offers the GPUs of the node", 0},
	} {
		t.Run(name, func(t *testing.T) {
			n := node("a", test.ready, test.reason, test.message, nil)
			n.Labels["nvidia.com/gpu.count"] = "8"
			got := overview.Of(overview.Cluster{Policy: &v1.ClusterPolicy{}, Nodes: []*corev1.Node{n}})
			g := NewWithT(t)
			g.Expect(got.Nodes[0].GPUs).To(Equal(overview.GPUs{Total: test.counted, Usable: test.counted}))
			g.Expect(got.Nodes[0].ByClaims).To(Equal(test.counted > 0))
			g.Expect(got.Summary.GPUsByClaims).To(Equal(test.counted))
		})
	}
}
