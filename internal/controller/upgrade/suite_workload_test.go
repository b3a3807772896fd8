package upgrade_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// addBudget creates a PodDisruptionBudget for the user's pod, which allows this number of disruptions.
func (f *fixture) addBudget(ctx context.Context, name, pod string, allowed int32) {
	GinkgoHelper()
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: users, Name: name},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt32(1)),
			Selector:     &metav1.LabelSelector{MatchLabels: map[string]string{"app": pod}},
		},
	}
	Expect(f.client.Create(ctx, budget)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(f.client.Delete(ctx, budget))).To(Succeed()) })
	f.allow(ctx, name, allowed)
}

// allow sets how many disruptions the budget allows, as the disruption controller does.
func (f *fixture) allow(ctx context.Context, name string, allowed int32) {
	GinkgoHelper()
	budget := &policyv1.PodDisruptionBudget{}
	Expect(f.client.Get(ctx, client.ObjectKey{Namespace: users, Name: name}, budget)).To(Succeed())
	budget.Status = policyv1.PodDisruptionBudgetStatus{
		ObservedGeneration: budget.Generation, DisruptionsAllowed: allowed, CurrentHealthy: 1 + allowed, DesiredHealthy: 1,
		ExpectedPods: 1 + allowed,
	}
	Expect(f.client.Status().Update(ctx, budget)).To(Succeed())
}

// until runs passes, a second apart, until the report has this text.
func (f *fixture) until(ctx context.Context, reported string) {
	GinkgoHelper()
	for range maxPasses {
		f.play(ctx)
		_, err := f.pass(ctx, f.manager, time.Second)
		Expect(err).NotTo(HaveOccurred())
		if f.reported() == reported {
			return
		}
	}
	Expect(f.reported()).To(Equal(reported))
}

var _ = Describe("A pod with GPUs", func() {
	It("that a PDB protects is named with it, and evicted once the PDB allows it", func(ctx SpecContext) {
		f := newFixture(ctx, automatic(), "a")
		f.addUser(ctx, "web-0", "a", 1)
		f.addBudget(ctx, "web", "web-0", 0)
		f.target = "new"
		f.until(ctx, "a pod-deletion-required: UpgradeBlocked "+
			"PDB default/web allows 0 disruptions: pod default/web-0 (held)")
		f.takeWrites()
		for range 60 {
			f.play(ctx)
			_, err := f.pass(ctx, f.manager, time.Second)
			Expect(err).NotTo(HaveOccurred())
		}
		attempts := len(f.takeWrites())
		Expect(attempts).To(And(BeNumerically(">=", 2), BeNumerically("<=", 6)), "the back-off is 5 to 30 s")
		Expect(f.userPods(ctx)).To(ConsistOf("web-0"))
		f.allow(ctx, "web", 1)
		f.upgraded(ctx)
		Expect(f.userPods(ctx)).To(BeEmpty())
	})

	It("that two PDBs protect cannot be evicted", func(ctx SpecContext) {
		f := newFixture(ctx, automatic(), "a")
		f.addUser(ctx, "web-0", "a", 1)
		f.addBudget(ctx, "one", "web-0", 1)
		f.addBudget(ctx, "two", "web-0", 1)
		f.target = "new"
		f.until(ctx, "a pod-deletion-required: UpgradeBlocked "+
			"several PDBs select it, which the eviction API does not support: pod default/web-0 (held)")
	})

	It("is read again every few seconds while it ends, less often the longer it takes", func(ctx SpecContext) {
		f := newFixture(ctx, automatic(), "a")
		f.addUser(ctx, "train", "a", 8)
		f.addBudget(ctx, "train", "train", 0)
		f.target = "new"
		f.until(ctx, "a pod-deletion-required: UpgradeBlocked "+
			"PDB default/train allows 0 disruptions: pod default/train (held)")
		waits := []time.Duration{}
		for range 6 {
			wait, err := f.pass(ctx, f.manager, 30*time.Second)
			Expect(err).NotTo(HaveOccurred())
			waits = append(waits, wait)
		}
		Expect(waits).To(HaveEach(And(BeNumerically(">=", 2*time.Second), BeNumerically("<=", 15*time.Second))))
		Expect(waits[5]).To(Equal(15 * time.Second))
	})

	DescribeTable("by a claim", func(ctx SpecContext, device string, mapped bool, evictions int) {
		f := newFixture(ctx, automatic(), "a")
		f.addClaimant(ctx, "claims", "a", device, mapped)
		f.upgraded(ctx)
		Expect(f.count(evictPod)).To(Equal(evictions))
	},
		Entry("for a GPU is evicted", "gpu.nvidia.com", false, 1),
		Entry("for a network device is not", "dra.net", false, 0),
		Entry("that is not allocated is not", "", false, 0),
		Entry("that the scheduler has created for its extended resource is evicted", "gpu.nvidia.com", true, 1),
		Entry("that it has created for a network device is not", "dra.net", true, 0),
	)

	It("by a claim for a network device is not evicted while the API server is slow", func(ctx SpecContext) {
		f := newFixture(ctx, automatic(), "a")
		f.addClaimant(ctx, "claims", "a", "dra.net", false)
		f.target = "new"
		for range 8 {
			f.play(ctx)
			f.failNext(readClaim, apierrors.NewTooManyRequests("later", 1))
			_, err := f.pass(ctx, f.manager, 30*time.Second)
			Expect(err).NotTo(HaveOccurred())
		}
		Expect(f.reported()).To(Equal("a upgrade-required: ReconcileFailed reading the pods: " +
			"reading resource claim default/claims: later (held)"))
		f.failNext(readClaim, nil)
		f.upgraded(ctx)
		Expect(f.count(evictPod)).To(BeZero())
	})
})

// addClaimant creates a running pod with a claim for a device of this driver; empty for one that is not allocated.
// mapped: the scheduler has created the claim for an extended resource of the pod.
func (f *fixture) addClaimant(ctx context.Context, name, node, device string, mapped bool) {
	GinkgoHelper()
	claim := &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: users, Name: name},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{
			{Name: "one", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "class"}},
		}}},
	}
	Expect(f.client.Create(ctx, claim)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(f.client.Delete(ctx, claim)).To(Succeed()) })
	if device != "" {
		claim.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
			Results: []resourcev1.DeviceRequestAllocationResult{{Request: "one", Driver: device, Pool: "p", Device: "d"}},
		}}
		Expect(f.client.Status().Update(ctx, claim)).To(Succeed())
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: users, Name: name}, Spec: podSpec(node, nil)}
	if mapped {
		pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"example.com/device": resource.MustParse("1")}
		pod.Spec.Containers[0].Resources.Requests = pod.Spec.Containers[0].Resources.Limits
	} else {
		pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "one", ResourceClaimName: new(name)}}
	}
	Expect(f.client.Create(ctx, pod)).To(Succeed())
	f.setReady(ctx, pod)
	if mapped {
		pod.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{
			ResourceClaimName: name,
			RequestMappings: []corev1.ContainerExtendedResourceRequest{{
				ContainerName: pod.Spec.Containers[0].Name, ResourceName: "example.com/device", RequestName: "one",
			}},
		}
		Expect(f.client.Status().Update(ctx, pod)).To(Succeed())
	}
}

var _ = Describe("The images of the new driver", func() {
	It("are pulled by a pod that may do nothing, beside all taints and cordons", func(ctx SpecContext) {
		f := newFixture(ctx, automatic(), "a")
		f.target = "new"
		for f.pullPod(ctx, "a") == nil {
			f.play(ctx)
			_, err := f.pass(ctx, f.manager, time.Second)
			Expect(err).NotTo(HaveOccurred())
		}
		pod := f.pullPod(ctx, "a")
		Expect(pod.Spec.NodeName).To(Equal("a"))
		Expect(pod.Spec.Tolerations).To(ContainElement(corev1.Toleration{Operator: corev1.TolerationOpExists}))
		Expect(pod.Spec.AutomountServiceAccountToken).To(HaveValue(BeFalse()))
		Expect(pod.Spec.ImagePullSecrets).To(ConsistOf(corev1.LocalObjectReference{Name: "pull"}))
		Expect(pod.Spec.Containers).To(HaveExactElements(
			HaveField("Image", "example.com/manager:1"), HaveField("Image", "example.com/driver:new"),
		), "each image once")
		Expect(f.node(ctx, "a").Spec.Unschedulable).To(BeFalse())
		Expect(f.restricted(ctx, pod)).To(Succeed())
	})

	It("hold the node if one cannot be pulled: nothing is cordoned or evicted", func(ctx SpecContext) {
		f := newFixture(ctx, automatic(), "a")
		f.addUser(ctx, "train", "a", 8)
		f.target = "new"
		for f.pullPod(ctx, "a") == nil {
			f.play(ctx)
			_, err := f.pass(ctx, f.manager, time.Second)
			Expect(err).NotTo(HaveOccurred())
		}
		f.setPull(ctx, f.pullPod(ctx, "a"), corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "manifest unknown"},
		})
		for range 5 {
			_, err := f.pass(ctx, f.manager, time.Second)
			Expect(err).NotTo(HaveOccurred())
			f.endPods(ctx)
		}
		Expect(f.reported()).To(Equal("a upgrade-required: " + v1.ReasonUpgradePullFailed +
			" image example.com/manager:1: manifest unknown (held)"))
		Expect(f.pullPod(ctx, "a")).To(BeNil())
		Expect(f.userPods(ctx)).To(ConsistOf("train"))
		Expect(f.node(ctx, "a")).To(HaveField("Spec.Unschedulable", false))
		Expect(f.count(evictPod)).To(BeZero())
		Expect(f.node(ctx, "a").Labels).To(HaveKeyWithValue(labels.UpgradeState, "upgrade-required"))

		By("pulling again at the next attempt, and not without")
		for range maxPasses {
			if f.pullPod(ctx, "a") != nil {
				break
			}
			_, err := f.pass(ctx, f.manager, 10*time.Minute)
			Expect(err).NotTo(HaveOccurred())
			Expect(f.node(ctx, "a")).To(HaveField("Spec.Unschedulable", false))
		}
		Expect(f.pullPod(ctx, "a")).NotTo(BeNil())
		Expect(f.count(evictPod)).To(BeZero())
	})
})

// restricted returns the error of creating such a pod in a namespace that enforces the level restricted.
func (f *fixture) restricted(ctx context.Context, pod *corev1.Pod) error {
	GinkgoHelper()
	const name = "restricted"
	err := f.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}})
	Expect(client.IgnoreAlreadyExists(err)).To(Succeed())
	again := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: pod.Name}, Spec: *pod.Spec.DeepCopy()}
	again.Spec.ServiceAccountName = ""
	return f.client.Create(ctx, again, client.DryRunAll)
}
