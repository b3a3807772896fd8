package upgrade

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// userPod is a running pod of a ReplicaSet with an extended resource; none if it is empty.
func userPod(name, requested string, changes ...func(*corev1.Pod)) corev1.Pod {
	p := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name, OwnerReferences: []metav1.OwnerReference{{
			Kind: "ReplicaSet", Name: "web", Controller: new(true),
		}}},
		Spec:   corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	if requested != "" {
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceName(requested): resource.MustParse("1")}
	}
	for _, change := range changes {
		change(&p)
	}
	return p
}

func inInit(p *corev1.Pod) {
	p.Spec.InitContainers, p.Spec.Containers = p.Spec.Containers, []corev1.Container{{Name: "main"}}
}

func forClients(p *corev1.Pod) {
	p.Spec.NodeSelector = map[string]string{labels.DeployClient: labels.True}
}

func ofDaemonSet(p *corev1.Pod) { p.OwnerReferences[0].Kind = "DaemonSet" }

func bare(p *corev1.Pod) { p.OwnerReferences = nil }

func withEmptyDir(p *corev1.Pod) {
	p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
}

func ended(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }

func labelled(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels = map[string]string{key: value} }
}

func claims(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: new("template")}}
		p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: &name}}
	}
}

func withRuntimeClass(p *corev1.Pod) { p.Spec.RuntimeClassName = new("nvidia") }

func mapped(claim string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: claim}
	}
}

func TestPodsAreClassified(t *testing.T) {
	const gpu = "nvidia.com/gpu"
	lenient := PodRules{Force: true, DeleteEmptyDir: true}
	operand := func(p *corev1.Pod) { p.Namespace = "gpu-operator"; labelled(labels.Operand, "dcgm")(p) }
	mirror := func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }
	for _, c := range []struct {
		name   string
		pod    corev1.Pod
		policy PodPolicy
		// is the list that the pod is in: users, others, or none. blocked is why it is not evicted.
		is, blocked string
		// drained: a drain evicts it, though it is blocked otherwise.
		drained bool
	}{
		{name: "a pod without GPUs", pod: userPod("a", ""), is: "others"},
		{name: "a pod with a CPU limit", pod: userPod("a", "cpu"), is: "others"},
		{name: "a whole GPU", pod: userPod("a", gpu), is: "users"},
		{name: "a shared GPU", pod: userPod("a", gpu+".shared"), is: "users"},
		{name: "a MIG device", pod: userPod("a", "nvidia.com/mig-1g.10gb"), is: "users"},
		{name: "another resource of the vendor", pod: userPod("a", "nvidia.com/hostdev"), is: "others"},
		{name: "an init container", pod: userPod("a", gpu, inInit), is: "users"},
		{name: "a claim for GPUs", pod: userPod("a", "", claims("gpu-claim")), is: "users"},
		{name: "another claim", pod: userPod("a", "", claims("nic-claim")), is: "others"},
		{name: "a RuntimeClass", pod: userPod("a", "", withRuntimeClass), is: "others"},
		{name: "the name that a DeviceClass implies", pod: userPod("a", "deviceclass.resource.kubernetes.io/gpu.nvidia.com"),
			is: "users"},
		{name: "a resource that a DeviceClass maps", pod: userPod("a", "example.com/device", mapped("gpu-claim")),
			is: "users"},
		{name: "another mapped resource", pod: userPod("a", "example.com/nic", mapped("nic-claim")), is: "others"},
		{name: "a monitor with admin access", pod: userPod("a", "", claims("admin-claim"), ofDaemonSet), is: "none"},
		{name: "a pod that has ended", pod: userPod("a", gpu, ended), is: "none"},
		{name: "a pod of a DaemonSet", pod: userPod("a", gpu, ofDaemonSet), is: "users",
			blocked: "its DaemonSet starts it again: take it off the node"},
		{name: "a pod of a DaemonSet without a GPU", pod: userPod("a", "", ofDaemonSet), is: "none"},
		{name: "a pod of a DaemonSet that k8s-driver-manager pauses", is: "none",
			pod: userPod("a", gpu, ofDaemonSet, forClients)},
		{name: "a static pod", pod: userPod("a", gpu, mirror), is: "users",
			blocked: "is a static pod: remove its manifest from the node"},
		{name: "a static pod without a GPU", pod: userPod("a", "", mirror), is: "none"},
		{name: "an operand", pod: userPod("a", gpu, operand), is: "none"},
		{name: "its label elsewhere", pod: userPod("a", gpu, labelled(labels.Operand, "dcgm")), is: "users"},
		{name: "no controller", pod: userPod("a", gpu, bare), is: "users",
			blocked: "needs spec.driver.upgradePolicy.podDeletion.force: it has no controller"},
		{name: "no controller, forced", pod: userPod("a", gpu, bare), policy: PodPolicy{PodDeletion: lenient}, is: "users"},
		{name: "an emptyDir", pod: userPod("a", gpu, withEmptyDir), is: "users",
			blocked: "needs spec.driver.upgradePolicy.podDeletion.deleteEmptyDir: it has an emptyDir"},
		{name: "neither", pod: userPod("a", gpu, bare, withEmptyDir), is: "users",
			blocked: "needs spec.driver.upgradePolicy.podDeletion.force and deleteEmptyDir: " +
				"it has no controller and an emptyDir"},
		{name: "an emptyDir, deleted", pod: userPod("a", gpu, withEmptyDir), is: "users",
			policy: PodPolicy{PodDeletion: lenient}},
		{name: "a drain permits more", pod: userPod("a", gpu, bare), is: "users",
			policy: PodPolicy{Draining: true, Drain: lenient}},
		{name: "a drain permits no more", pod: userPod("a", gpu, bare), policy: PodPolicy{Draining: true}, is: "users",
			blocked: "needs spec.driver.upgradePolicy.drain.force: it has no controller"},
		{name: "only while it drains", pod: userPod("a", gpu, bare), policy: PodPolicy{Drain: lenient}, is: "users",
			blocked: "needs spec.driver.upgradePolicy.podDeletion.force: it has no controller", drained: true},
		{name: "an emptyDir, which only a drain deletes", pod: userPod("a", gpu, withEmptyDir), is: "users",
			policy:  PodPolicy{Drain: lenient},
			blocked: "needs spec.driver.upgradePolicy.podDeletion.deleteEmptyDir: it has an emptyDir", drained: true},
		{name: "no drain evicts it", pod: userPod("a", "", labelled(labels.DrainSkip, "true")), is: "none"},
		{name: "no drain evicts it, but it has GPUs", pod: userPod("a", gpu, bare, labelled(labels.DrainSkip, "true")),
			policy: PodPolicy{Draining: true, Drain: lenient}, is: "users",
			blocked: "needs spec.driver.upgradePolicy.podDeletion.force: it has no controller"},
		{name: "not selected by the drain", pod: userPod("a", ""),
			policy: PodPolicy{DrainSelector: k8slabels.SelectorFromSet(k8slabels.Set{"x": "y"})}, is: "none"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := NewWithT(t)
			c.policy.Namespace, c.policy.Field = "gpu-operator", "spec.driver.upgradePolicy"
			claims := func(_, claim string) bool { return claim == "gpu-claim" }
			got := ClassifyPods([]corev1.Pod{c.pod}, c.policy, claims)
			lists := map[string][]WorkloadPod{"users": got.Users, "others": got.Others}
			for name, list := range lists {
				if name != c.is {
					g.Expect(list).To(BeEmpty(), name)
					continue
				}
				g.Expect(list).To(ConsistOf(WorkloadPod{
					Namespace: c.pod.Namespace, Name: "a", Blocked: c.blocked, Forbidden: c.blocked != "",
					Lasting: c.blocked != "" && !c.drained,
				}))
			}
			g.Expect(got.Jobs).To(BeEmpty())
		})
	}
}

func TestJobsAreSelected(t *testing.T) {
	g := NewWithT(t)
	policy := PodPolicy{Jobs: k8slabels.SelectorFromSet(k8slabels.Set{"kind": "train"})}
	ending := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }
	pods := []corev1.Pod{
		userPod("a", "", labelled("kind", "train")), userPod("b", "nvidia.com/gpu", labelled("kind", "train"), ending),
		userPod("c", "nvidia.com/gpu"),
	}
	got := ClassifyPods(pods, policy, nil)
	g.Expect(got.Jobs).To(ConsistOf(HaveField("Name", "a"), And(HaveField("Name", "b"), HaveField("Ending", true))))
	g.Expect(got.Users).To(ConsistOf(HaveField("Name", "b"), HaveField("Name", "c")))
}

// Pods that were read some time ago may only make a node wait. What it decides because pods were not there cannot be
// undone: jobs are evicted, and a driver is deleted.
func TestPodsThatANodeAwaits(t *testing.T) {
	one := []WorkloadPod{{Name: "p", UID: "p"}}
	users, jobs, others := &Workload{Users: one}, &Workload{Jobs: one}, &Workload{Others: one}
	both, withoutUsers := &Workload{Users: one, Jobs: one}, []*Workload{jobs, others}
	for name, test := range map[string]struct {
		state        State
		drain        DrainState
		awaited, not []*Workload
	}{
		"it has not begun": {state: StateRequired, not: []*Workload{users, jobs, both, others}},
		"it waits for jobs": {
			state: StateWaitForJobs, awaited: []*Workload{jobs, both}, not: []*Workload{users, others},
		},
		"its pods are evicted":     {state: StatePodDeletion, awaited: []*Workload{users, both}, not: withoutUsers},
		"all its pods are evicted": {state: StateDrain, awaited: []*Workload{users, both}, not: withoutUsers},
		"its driver is replaced":   {state: StatePodRestart, awaited: []*Workload{users, both}, not: withoutUsers},
		"it is not drained":        {not: []*Workload{users, jobs, both, others}},
		"it waits for jobs for a layout": {
			drain: DrainJobs, awaited: []*Workload{both}, not: []*Workload{users, jobs, others},
		},
		"its pods are evicted for a layout": {
			drain: DrainUsers, awaited: []*Workload{users, both}, not: withoutUsers,
		},
		"all its pods are evicted for a layout": {
			drain: DrainAll, awaited: []*Workload{users, both}, not: withoutUsers,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			n := upToDate("a")
			if test.state != StateNone {
				n.Record = &Record{UID: n.UID, Round: 1, State: test.state, Target: "v2"}
			}
			if test.drain != "" {
				n.MIG.Drain = &Drain{UID: n.UID, State: test.drain, Layout: "b"}
			}
			g.Expect(n.AwaitsPods()).To(BeFalse(), "the pods are not known")
			for _, n.Workload = range test.awaited {
				g.Expect(n.AwaitsPods()).To(BeTrue(), "%+v", *n.Workload)
			}
			for _, n.Workload = range append(test.not, &Workload{}) {
				g.Expect(n.AwaitsPods()).To(BeFalse(), "%+v", *n.Workload)
			}
		})
	}
}

// A drain evicts pods without GPUs, too. An upgrade of the driver comes before the MIG layout.
func TestNodesOfWhichAllPodsAreEvicted(t *testing.T) {
	record := func(uid types.UID, state State) *Record {
		return &Record{UID: uid, Round: 1, State: state, Target: "v2"}
	}
	drain := func(uid types.UID, state DrainState) *Drain { return &Drain{UID: uid, State: state, Layout: "b"} }
	for name, test := range map[string]struct {
		record *Record
		drain  *Drain
		want   bool
	}{
		"nothing":                             {},
		"the upgrade of a driver drains it":   {record: record("u", StateDrain), want: true},
		"the upgrade evicts pods with GPUs":   {record: record("u", StatePodDeletion)},
		"the upgrade replaces the driver":     {record: record("u", StatePodRestart)},
		"the record of a deleted Node":        {record: record("other", StateDrain)},
		"a layout drains it":                  {drain: drain("u", DrainAll), want: true},
		"a layout evicts pods with GPUs":      {drain: drain("u", DrainUsers)},
		"a layout waits for jobs":             {drain: drain("u", DrainJobs)},
		"a layout is being changed":           {drain: drain("u", DrainChanging)},
		"the drain of a deleted Node":         {drain: drain("other", DrainAll)},
		"a layout drains it after an upgrade": {record: record("u", StateDone), drain: drain("u", DrainAll), want: true},
		"an upgrade interrupts that of a layout": {
			record: record("u", StatePodDeletion), drain: drain("u", DrainAll),
		},
		"an upgrade drains it beside a layout": {
			record: record("u", StateDrain), drain: drain("u", DrainUsers), want: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := upToDate("a")
			n.Record, n.MIG.Drain = test.record, test.drain
			NewWithT(t).Expect(n.IsDrained()).To(Equal(test.want))
		})
	}
}
