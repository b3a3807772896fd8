package upgrade_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpolicy/gpu-operator/internal/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// setUpgrade replaces the entry of the node by one with this state.
func (f *fixture) setUpgrade(node string, state fleet.UpgradeState) {
	entry := *f.fleet.Get(node)
	entry.Upgrade = state
	f.fleet.Set(&entry)
}

var _ = Describe("Nodes at rest", func() {
	// lists runs a pass and returns how many lists it has read.
	lists := func(ctx context.Context, f *fixture) int {
		GinkgoHelper()
		f.takeLists()
		_, err := f.pass(ctx, f.manager, time.Second)
		Expect(err).NotTo(HaveOccurred())
		return f.takeLists()
	}

	It("are not read, and those that are up to date are counted", func(ctx SpecContext) {
		f := newFakeFixture(ctx, automatic(), "a", "b", "c")
		for _, name := range f.nodes {
			f.setUpgrade(name, fleet.UpgradeDone)
		}
		Expect(lists(ctx, f)).NotTo(BeZero(), "there may be slots of an earlier manager")
		Expect(lists(ctx, f)).To(BeZero())
		Expect(*f.fleet.View().Upgrades).To(And(HaveField("Nodes", BeEmpty()), HaveField("Done", 3)))
		f.setUpgrade("c", fleet.UpgradeAtRest)
		Expect(lists(ctx, f)).To(BeZero())
		Expect(f.fleet.View().Upgrades.Done).To(Equal(2))
	})

	DescribeTable("are not read because of a ConfigMap without slots that end", func(
		ctx SpecContext, change func(*corev1.ConfigMap),
	) {
		f := newFakeFixture(ctx, automatic(), "a", "b")
		slots := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: cluster.OperatorNamespace, Name: labels.UpgradeSlots,
			Labels: map[string]string{labels.ManagedBy: labels.ManagedByValue},
		}}
		change(slots)
		Expect(f.client.Create(ctx, slots)).To(Succeed())
		for _, name := range f.nodes {
			f.setUpgrade(name, fleet.UpgradeDone)
		}
		Expect(lists(ctx, f)).NotTo(BeZero(), "there may be slots of an earlier manager")
		Expect(lists(ctx, f)).To(BeZero())
	},
		Entry("as it is empty", func(*corev1.ConfigMap) {}),
		Entry("as it is a user's", func(slots *corev1.ConfigMap) { slots.Labels = nil }),
		Entry("as it is immutable", func(slots *corev1.ConfigMap) { slots.Immutable = new(true) }),
		Entry("as its entries are unreadable", func(slots *corev1.ConfigMap) { slots.Data = map[string]string{"a": "?"} }),
	)

	DescribeTable("are read while one is not", func(ctx SpecContext, state fleet.UpgradeState) {
		f := newFakeFixture(ctx, automatic(), "a", "b")
		f.setUpgrade("a", fleet.UpgradeDone)
		f.setUpgrade("b", state)
		Expect(lists(ctx, f)).NotTo(BeZero())
		Expect(lists(ctx, f)).NotTo(BeZero())
	},
		Entry("because it is upgraded", fleet.UpgradeActive),
		Entry("because it was not looked at", fleet.UpgradeUnknown),
	)

	It("are read without a policy, whose slots may have to end", func(ctx SpecContext) {
		f := newFakeFixture(ctx, automatic(), "a")
		f.setUpgrade("a", fleet.UpgradeAtRest)
		lists(ctx, f)
		f.deleted = true
		f.play(ctx)
		f.setUpgrade("a", fleet.UpgradeAtRest)
		Expect(lists(ctx, f)).NotTo(BeZero())
		Expect(f.reported()).To(Equal("none"))
	})
})
