package overview_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cli/overview"
)

func quantities(offers map[string]int64) corev1.ResourceList {
	list := corev1.ResourceList{}
	for name, count := range offers {
		list[corev1.ResourceName(name)] = *resource.NewQuantity(count, resource.DecimalSI)
	}
	return list
}

var since = metav1.Unix(1_000_000, 0)

func node(name string, ready corev1.ConditionStatus, reason, message string, offers map[string]int64) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	n.Status.Allocatable, n.Status.Capacity = quantities(offers), quantities(offers)
	if reason != "" {
		n.Status.Conditions = []corev1.NodeCondition{{
			Type: "nvidia.com/GPUReady", Status: ready, Reason: reason, Message: name + ": " + message,
			LastTransitionTime: since,
		}}
	}
	return n
}

// record sets what the condition of the node says, for programs.
func record(n *corev1.Node, encoded string) {
	metav1.SetMetaDataAnnotation(&n.ObjectMeta, "nvidia.com/gpu-operator.report", encoded)
}

func pod(uid, on string, requests map[string]int64) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}, Spec: corev1.PodSpec{NodeName: on}}
	p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: quantities(requests)}}}
	return p
}

// The nodes that are not ready come first, GPUs of all are counted, and only whole ones as free.
func TestOverview(t *testing.T) {
	g := NewWithT(t)
	const gpu, partition = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb"
	eight := map[string]int64{gpu: 8}
	shared := node("shared", corev1.ConditionTrue, "GPUReady", "GPUs can be used", map[string]int64{gpu: 16})
	shared.Labels = map[string]string{
		"nvidia.com/gpu.count": "4", "nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": "time-slicing",
		"nvidia.com/gpu.product": "NVIDIA-H100-SHARED", "nvidia.com/cuda.driver.major": "580",
		"nvidia.com/cuda.driver.minor": "95", "nvidia.com/cuda.driver.rev": "05",
	}
	whole := node("whole", corev1.ConditionTrue, "GPUReady", "GPUs can be used", map[string]int64{gpu: 8, "cpu": 4})
	whole.Labels["nvidia.com/cuda.driver-version.full"] = "590.1"
	whole.Annotations = map[string]string{"nvidia.com/gpu-operator.gpu-health": `{"boot":
		"5cf2a7a8-9b9a-4c8e-8c0c-2f0f7d6a1b2c", "faults": [{"pci": "0000:1b:00.0", "class": "Reboot",
		"reason": "GPULost", "xid": 79, "since": "2026-11-25T12:03:00Z"}]}`}
	mig := node("mig", corev1.ConditionTrue, "UpgradePending", "GPUs can be used; driver outdated", map[string]int64{
		"nvidia.com/mig-3g.40gb": 1, "nvidia.com/mig-1g.20gb": 1, partition: 7, "nvidia.com/mig-2g.20gb": 1,
	})
	mig.Labels["nvidia.com/mig.config"], mig.Labels["nvidia.com/mig.config.state"] = "mixed", "success"
	mig.Labels["nvidia.com/gpu.count"] = "1"
	listed := node("listed", corev1.ConditionTrue, "GPUReady", "GPUs can be used", eight)
	listed.Spec.Unschedulable = true
	listed.Labels["nvidia.com/gpu-driver-upgrade-state"] = "upgrade-done"
	listed.Status.Conditions = append(listed.Status.Conditions, corev1.NodeCondition{
		Type: "nvidia.com/GPUHealthy", Status: corev1.ConditionFalse, Reason: "NVLinkError",
	})
	waiting := node("waiting", corev1.ConditionFalse, "Starting", "stage Validated, operand validator: starts", eight)
	waiting.Labels["nvidia.com/gpu-driver-upgrade-state"] = "drain-required"
	record(waiting, `{"stage":"Validated","operand":"validator"}`)
	broken := node("broken", corev1.ConditionFalse, "CrashLoopBackOff",
		"stage Driver, operand driver: container x: crash", eight)
	record(broken, `{"stage":"Driver","operand":"driver"}`)
	nodes := []*corev1.Node{
		whole, shared, mig, listed, waiting,
		node("excluded", corev1.ConditionFalse, "Excluded", "excluded by a label", eight),
		node("added", "", "", "", nil),
		broken,
	}
	usage := &overview.Usage{}
	usage.Set(pod("1", "whole", map[string]int64{gpu: 3}))
	usage.Set(pod("1", "whole", map[string]int64{gpu: 2}))
	usage.Set(pod("2", "shared", map[string]int64{gpu: 1}))
	usage.Set(pod("3", "mig", map[string]int64{partition: 2}))
	usage.Set(pod("4", "mig", map[string]int64{"nvidia.com/mig-2g.20gb": 1}))
	usage.Set(pod("5", "", map[string]int64{gpu: 1}))
	usage.Set(pod("6", "whole", map[string]int64{"cpu": 1}))
	usage.Delete("4")
	for _, phase := range []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed} {
		ended := pod(string(phase), "whole", map[string]int64{gpu: 1})
		ended.Status.Phase = phase
		usage.Set(ended)
	}
	g.Expect(usage.Of("", gpu)).To(BeZero(), "a pod that is on no node")
	upgrade := &v1.UpgradeStatus{Target: "590.1", Pending: 1}
	policy := &v1.ClusterPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "active", Generation: 2},
		Status: v1.ClusterPolicyStatus{
			Conditions: []metav1.Condition{{
				Type: v1.ConditionReady, Status: metav1.ConditionFalse, Reason: "OperandFailed", Message: "1 of 6",
				ObservedGeneration: 2,
			}},
			Nodes: []v1.NodeStatus{
				{Name: "listed", GPUs: &v1.NodeGPUs{Total: 8, Usable: 5}, Upgrade: &v1.NodeUpgradeStatus{State: "upgrade-failed"}},
				{Name: "waiting"},
			},
			Upgrade: upgrade,
		},
	}
	got := overview.Of(overview.Cluster{Policy: policy, Nodes: nodes, Usage: usage})
	offers := func(name string, allocatable, free int64) overview.Resource {
		return overview.Resource{Name: name, Allocatable: allocatable, Free: &free}
	}
	free := int64(6)
	want := overview.Overview{
		Policy: &overview.Policy{
			Name: "active", Ready: "False", Reason: "OperandFailed", Message: "1 of 6", Upgrade: upgrade,
		},
		Summary: overview.Summary{Nodes: 7, ReadyNodes: 4, GPUs: 37, UsableGPUs: 25, NodesOfUnknownGPUs: 1, FreeGPUs: &free},
		Nodes: []overview.Node{
			{
				Name: "broken", Ready: "False", Since: &since, Stage: "Driver", Operand: "driver", Reason: "CrashLoopBackOff",
				Message: "container x: crash", GPUs: overview.GPUs{Total: 8},
				Resources: []overview.Resource{offers(gpu, 8, 8)},
			},
			{
				Name: "waiting", Ready: "False", Since: &since, Stage: "Validated", Operand: "validator", Reason: "Starting",
				Message: "starts", GPUs: overview.GPUs{Total: 8, Usable: 8}, Upgrade: "drain-required",
				Resources: []overview.Resource{offers(gpu, 8, 8)},
			},
			{Name: "added", Ready: "Unknown", Message: "the operator has not reported on the node"},
			{
				Name: "listed", Ready: "True", Since: &since, Stage: "Validated", Message: "GPUs can be used",
				GPUs: overview.GPUs{Total: 8, Usable: 5}, Upgrade: "upgrade-failed", Health: "NVLinkError", Cordoned: true,
				Resources: []overview.Resource{offers(gpu, 8, 8)},
			},
			{
				Name: "mig", Ready: "True", Since: &since, Stage: "Validated", Reason: "UpgradePending",
				Message: "GPUs can be used; driver outdated", GPUs: overview.GPUs{Total: 1, Usable: 1},
				MIG: &overview.MIG{Layout: "mixed", State: "success"}, Resources: []overview.Resource{
					offers(partition, 7, 5), offers("nvidia.com/mig-1g.20gb", 1, 1), offers("nvidia.com/mig-2g.20gb", 1, 1),
					offers("nvidia.com/mig-3g.40gb", 1, 1),
				},
			},
			{
				Name: "shared", Ready: "True", Since: &since, Stage: "Validated", Message: "GPUs can be used",
				GPUs: overview.GPUs{Total: 4, Usable: 4}, Product: "NVIDIA-H100-SHARED", Sharing: "time-slicing x4",
				Driver: "580.95.05", Resources: []overview.Resource{offers(gpu, 16, 15)},
			},
			{
				Name: "whole", Ready: "True", Since: &since, Stage: "Validated", Message: "GPUs can be used",
				GPUs: overview.GPUs{Total: 8, Usable: 7}, Driver: "590.1", Resources: []overview.Resource{offers(gpu, 8, 6)},
			},
			{
				Name: "excluded", Ready: "Excluded", Since: &since, Reason: "Excluded", Message: "excluded by a label",
				GPUs: overview.GPUs{Total: 8, Usable: 8}, Resources: []overview.Resource{offers(gpu, 8, 8)},
			},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
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

// Shares are no GPUs, also before GPU Feature Discovery has labelled the node. GPUs on the bus count, unless NFD finds
// them, which does not count them.
func TestGPUsOfANodeWithoutLabels(t *testing.T) {
	share := func(replicas int32) *v1.SharingSpec {
		return &v1.SharingSpec{TimeSlicing: &v1.TimeSlicingSpec{Replicas: replicas}}
	}
	policy := &v1.ClusterPolicy{Spec: v1.ClusterPolicySpec{
		Sharing: share(4), NodePools: []v1.NodePoolSpec{{Name: "two", Sharing: share(2)}},
	}}
	count := func(pool, onBus string, want int) {
		t.Helper()
		n := node("a", "True", "GPUReady", "GPUs can be used", map[string]int64{"nvidia.com/gpu": 16})
		n.Labels["nvidia.com/gpu-operator.node-pool"] = pool
		n.Annotations = map[string]string{"nvidia.com/gpu-operator.gpus-on-bus": onBus}
		got := overview.Of(overview.Cluster{Policy: policy, Nodes: []*corev1.Node{n}})
		NewWithT(t).Expect(got.Nodes[0].GPUs).To(Equal(overview.GPUs{Total: want, Usable: want}), pool)
	}
	count("", "", 4)
	count("two", "", 8)
	count("two", "6", 6)
	policy.Spec.NodeDiscovery = &v1.NodeDiscoverySpec{Mode: v1.DiscoveryNFD}
	count("two", "6", 8)
}

// GPUs that only resource claims get count as usable while the node is ready, also where another reason than GPUReady
// takes the place of the note about them.
func TestGPUsOfADRADriver(t *testing.T) {
	for name, test := range map[string]struct {
		ready          corev1.ConditionStatus
		reason, record string
		counted        int
	}{
		"by claims":              {"True", "GPUReady", `{"byClaims":true}`, 8},
		"with a pending upgrade": {"True", "UpgradePending", `{"byClaims":true}`, 8},
		"not ready":              {"False", "NotAllocatable", `{"stage":"Allocatable"}`, 0},
		"by nothing":             {"True", "GPUReady", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			n := node("a", test.ready, test.reason, "some message", nil)
			record(n, test.record)
			n.Labels["nvidia.com/gpu.count"] = "8"
			got := overview.Of(overview.Cluster{Policy: &v1.ClusterPolicy{}, Nodes: []*corev1.Node{n}})
			g := NewWithT(t)
			g.Expect(got.Nodes[0].GPUs).To(Equal(overview.GPUs{Total: 8, Usable: test.counted}))
			g.Expect(got.Nodes[0].ByClaims).To(Equal(test.counted > 0))
			g.Expect(got.Summary.GPUsByClaims).To(Equal(test.counted))
		})
	}
}

// Without its own record, as of an operator before it, or beside a stale one, a node has the stage of the status.
func TestNodesWithoutARecord(t *testing.T) {
	policy := &v1.ClusterPolicy{Status: v1.ClusterPolicyStatus{Nodes: []v1.NodeStatus{
		{Name: "a", Stage: v1.StageDriver, Operand: "driver", GPUs: &v1.NodeGPUs{Total: 8}},
	}}}
	for _, recorded := range []string{"", `{"stage":"Toolkit","operand":"container-toolkit"}`, `{"byClaims":true}`} {
		g := NewWithT(t)
		n := node("a", corev1.ConditionFalse, "CrashLoopBackOff", "stage Driver, operand driver: x", nil)
		record(n, recorded)
		got := overview.Of(overview.Cluster{Policy: policy, Nodes: []*corev1.Node{n}}).Nodes[0]
		g.Expect(got).To(And(HaveField("Stage", v1.StageDriver), HaveField("Operand", "driver"),
			HaveField("ByClaims", false), HaveField("Message", "stage Driver, operand driver: x")))
	}
}
