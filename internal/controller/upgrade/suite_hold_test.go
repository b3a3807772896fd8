package upgrade_test

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/controller/upgrade"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// halfway returns a node that is cordoned and waits for the end of a pod with GPUs.
func halfway(ctx context.Context) *fixture {
	GinkgoHelper()
	f := newFixture(ctx, automatic(), "a")
	f.addUser(ctx, "train", "a", 8)
	f.addBudget(ctx, "train", "train", 0)
	f.target = "new"
	f.until(ctx, "a pod-deletion-required: UpgradeBlocked "+
		"PDB default/train allows 0 disruptions: pod default/train (held)")
	f.takeWrites()
	return f
}

// expectNoWrites runs some passes that must write nothing.
func (f *fixture) expectNoWrites(ctx context.Context) {
	GinkgoHelper()
	for range 5 {
		_, err := f.pass(ctx, f.manager, 10*time.Second)
		Expect(err).NotTo(HaveOccurred())
	}
	Expect(f.takeWrites()).To(BeEmpty())
}

var _ = Describe("Nothing is written", func() {
	It("while the policy is paused, and the upgrade continues afterwards", func(ctx SpecContext) {
		f := halfway(ctx)
		f.spec.Paused = new(true)
		f.play(ctx)
		f.expectNoWrites(ctx)
		f.spec.Paused = nil
		f.allow(ctx, "train", 1)
		f.upgraded(ctx)
	})

	It("while NVIDIA's operator is at work", func(ctx SpecContext) {
		f := halfway(ctx)
		f.fleet.Publish(fleet.Basis{KeepNodes: true}, f.clock.Now())
		f.expectNoWrites(ctx)
	})

	It("to a node that is not assessed by the current Basis", func(ctx SpecContext) {
		f := halfway(ctx)
		f.target = "newer"
		f.fleet.Publish(f.basis(), f.clock.Now())
		wait, err := f.pass(ctx, f.manager, time.Second)
		Expect(err).NotTo(HaveOccurred())
		Expect(wait).To(BeNumerically("<=", 10*time.Second), "it waits for the assessment")
		f.expectNoWrites(ctx)
	})

	It("by another policy than that of its node pool, though none of the pool's nodes is assessed", func(ctx SpecContext) {
		spec := automatic()
		spec.NodePools = []v1.NodePoolSpec{{
			Name: "training", NodeSelector: v1.NodePoolSelector{"team": "training"},
			Driver: &v1.NodePoolDriverSpec{UpgradePolicy: &v1.NodePoolUpgradePolicySpec{
				AutoUpgrade: new(true), PodDeletion: spec.Driver.UpgradePolicy.PodDeletion,
			}},
		}}
		spec.Driver = nil
		f := newFakeFixture(ctx, spec, "a", "b")
		for _, node := range f.nodes {
			f.update(ctx, node, func(node *corev1.Node) { node.Labels["team"] = "training" })
		}
		f.addUser(ctx, "train", "a", 8)
		f.blocked.Store(true)
		f.target = "new"
		const blocked = "a pod-deletion-required: UpgradeBlocked"
		for i := 0; i < maxPasses && !strings.Contains(f.reported(), blocked); i++ {
			f.play(ctx)
			_, err := f.pass(ctx, f.manager, time.Second)
			Expect(err).NotTo(HaveOccurred())
		}
		const queued = "b upgrade-required: UpgradeQueued maxParallelUpgrades 1: a is being upgraded"
		Expect(f.reported()).To(And(ContainSubstring(blocked), ContainSubstring(queued)))
		f.takeWrites()
		f.fleet.Publish(f.basis(), f.clock.Now())
		_, err := f.pass(ctx, f.manager, upgrade.DefaultTiming().Assessment)
		Expect(err).NotTo(HaveOccurred())
		Expect(f.reported()).To(ContainSubstring(queued))
		Expect(f.takeWrites()).To(BeEmpty())
	})

	It("before the fleet has all nodes", func(ctx SpecContext) {
		f := halfway(ctx)
		f.fleet = fleet.New()
		f.manager = f.newManager()
		f.fleet.Publish(f.basis(), f.clock.Now())
		f.expectNoWrites(ctx)
	})
})

var _ = Describe("A node that is cordoned", func() {
	It("by this operator is uncordoned when the policy is deleted", func(ctx SpecContext) {
		f := halfway(ctx)
		f.fleet.Publish(fleet.Basis{}, f.clock.Now())
		for range 3 {
			_, err := f.pass(ctx, f.manager, time.Second)
			Expect(err).NotTo(HaveOccurred())
		}
		node := f.node(ctx, "a")
		Expect(node.Spec.Unschedulable).To(BeFalse())
		Expect(node.Labels).NotTo(HaveKey(labels.UpgradeState))
		Expect(node.Annotations).NotTo(HaveKey(labels.UpgradeRecord))
		Expect(f.takeWrites()).To(ConsistOf(patchNode, deleteSlots))
		Expect(f.fleet.View().Upgrades).To(BeNil())
	})

	It("by a user stays cordoned", func(ctx SpecContext) {
		spec := automatic()
		spec.Driver.UpgradePolicy.MaxUnavailable = new(intstr.FromString("50%"))
		f := newFixture(ctx, spec, "a", "b", "c", "d")
		f.update(ctx, "b", func(node *corev1.Node) { node.Spec.Unschedulable = true })
		f.target = "new"
		done := func() bool {
			for _, name := range f.nodes {
				if f.node(ctx, name).Labels[labels.UpgradeState] != "upgrade-done" {
					return false
				}
			}
			return true
		}
		for i := 0; i < maxPasses && !done(); i++ {
			f.play(ctx)
			_, err := f.pass(ctx, f.manager, time.Second)
			Expect(err).NotTo(HaveOccurred())
		}
		Expect(done()).To(BeTrue(), f.reported())
		Expect(f.node(ctx, "b").Spec.Unschedulable).To(BeTrue())
		Expect(f.cordoned(ctx)).To(Equal(1))
		Expect(f.node(ctx, "b").Annotations).NotTo(HaveKey(labels.UpgradeInitialCordon))
	})
})

var _ = Describe("A node whose validator k8s-driver-manager has paused", func() {
	It("stays cordoned until the validator has passed", func(ctx SpecContext) {
		f := newFakeFixture(ctx, automatic(), "a")
		deploy := labels.DeployPrefix + validator
		f.update(ctx, "a", func(node *corev1.Node) { node.Labels[deploy] = "paused-for-driver-upgrade" })
		f.target = "new"
		for range maxPasses / 4 {
			f.play(ctx)
			f.deletePod(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: cluster.OperatorNamespace, Name: validator + "-a",
			}})
			_, err := f.pass(ctx, f.manager, time.Second)
			Expect(err).NotTo(HaveOccurred())
		}
		Expect(f.node(ctx, "a").Labels).To(HaveKeyWithValue(labels.UpgradeState, "validation-required"), f.reported())
		Expect(f.node(ctx, "a").Spec.Unschedulable).To(BeTrue())
		Expect(f.reported()).To(ContainSubstring("label " + deploy + ` is "paused-for-driver-upgrade"`))
		f.update(ctx, "a", func(node *corev1.Node) { node.Labels[deploy] = labels.True })
		f.upgraded(ctx)
	})
})

var _ = Describe("A node that needs the driver of another pool", func() {
	It("leaves its pool without GPU users, though the other pool has no DaemonSet yet", func(ctx SpecContext) {
		f := newFixture(ctx, automatic(), "a")
		f.addUser(ctx, "train", "a", 8)
		f.update(ctx, "a", func(node *corev1.Node) { node.Labels[labels.DiscoveryOSVersion] = "26.04" })
		left := func() bool {
			_, pooled := f.node(ctx, "a").Labels[labels.Pool]
			_, anchored := f.node(ctx, "a").Labels[labels.DriverAnchor]
			return !pooled && !anchored
		}
		for i := 0; i < maxPasses && !left(); i++ {
			Expect(f.node(ctx, "a").Labels[labels.Pool] == pool || f.cordoned(ctx) == 1).To(BeTrue())
			f.play(ctx)
			_, err := f.pass(ctx, f.manager, time.Second)
			Expect(err).NotTo(HaveOccurred())
		}
		Expect(left()).To(BeTrue(), f.reported())
		Expect(f.userPods(ctx)).To(BeEmpty())
		Expect(f.node(ctx, "a").Labels).To(HaveKeyWithValue(labels.UpgradeState, "pod-restart-required"))
		Expect(f.count(deleteDriver)).To(BeZero(), "the DaemonSet controller deletes the driver pod")
	})
})

var _ = Describe("The Events of a node", func() {
	It("name the transitions, each once", func(ctx SpecContext) {
		f := newFixture(ctx, automatic(), "a")
		f.upgraded(ctx)
		list := &corev1.EventList{}
		Expect(f.client.List(ctx, list)).To(Succeed())
		messages := []string{}
		for i := range list.Items {
			if list.Items[i].InvolvedObject.UID == f.node(ctx, "a").UID {
				Expect(list.Items[i].Reason).To(Equal("GPUDriverUpgrade"))
				messages = append(messages, list.Items[i].Message)
			}
		}
		Expect(messages).To(ContainElements(ContainSubstring("cordoned for its upgrade"),
			ContainSubstring("the new driver is validated")))
	})
})
