package upgrade_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	planner "github.com/clusterpolicy/gpu-operator/internal/upgrade"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// setResting replaces the entry of the node by one that is at rest, and up to date or not.
func (f *fixture) setResting(node string, upToDate bool) {
	entry := *f.fleet.Get(node)
	entry.Resting = &planner.Resting{Name: node, UpToDate: upToDate}
	f.fleet.Set(&entry)
}

// slotOf is a slot of the node.
func slotOf(node *corev1.Node) string { return fmt.Sprintf(`{"uid":%q,"round":1}`, node.UID) }

// restingWithSlot puts all nodes at rest, and returns the ConfigMap in which one of them still has a slot.
func restingWithSlot(ctx context.Context, f *fixture) *corev1.ConfigMap {
	GinkgoHelper()
	for _, name := range f.nodes {
		f.setResting(name, true)
	}
	slots := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cluster.OperatorNamespace, Name: labels.UpgradeSlots,
			Labels: map[string]string{labels.ManagedBy: labels.ManagedByValue},
		},
		Data: map[string]string{f.nodes[0]: slotOf(f.node(ctx, f.nodes[0]))},
	}
	Expect(f.client.Create(ctx, slots)).To(Succeed())
	return slots
}

var _ = Describe("Nodes at rest", func() {
	// reads runs a pass and returns how often it has read pods and slots.
	reads := func(ctx context.Context, f *fixture) int {
		GinkgoHelper()
		f.takeReads()
		_, err := f.pass(ctx, f.manager, time.Second)
		Expect(err).NotTo(HaveOccurred())
		return f.takeReads()
	}

	It("are not read, and those that are up to date are counted", func(ctx SpecContext) {
		f := newFakeFixture(ctx, automatic(), "a", "b", "c")
		for _, name := range f.nodes {
			f.setResting(name, true)
		}
		Expect(reads(ctx, f)).NotTo(BeZero(), "there may be slots of an earlier manager")
		Expect(reads(ctx, f)).To(BeZero())
		Expect(*f.fleet.View().Upgrades).To(And(HaveField("Nodes", BeEmpty()), HaveField("Done", 3)))
		f.setResting("c", false)
		Expect(reads(ctx, f)).To(BeZero())
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
			f.setResting(name, true)
		}
		Expect(reads(ctx, f)).NotTo(BeZero(), "there may be slots of an earlier manager")
		Expect(reads(ctx, f)).To(BeZero())
	},
		Entry("as it is empty", func(*corev1.ConfigMap) {}),
		Entry("as it is a user's", func(slots *corev1.ConfigMap) { slots.Labels = nil }),
		Entry("as it is immutable", func(slots *corev1.ConfigMap) { slots.Immutable = new(true) }),
		Entry("as its entries are unreadable", func(slots *corev1.ConfigMap) { slots.Data = map[string]string{"a": "?"} }),
	)

	It("are not read because another one is not", func(ctx SpecContext) {
		f := newFakeFixture(ctx, automatic(), "a", "b", "c")
		f.setResting("a", true)
		f.setResting("b", true)
		Expect(reads(ctx, f)).NotTo(BeZero(), "there may be slots of an earlier manager")
		Expect(reads(ctx, f)).To(Equal(1), "the pods of the other one")
		Expect(f.fleet.View().Upgrades.Done).To(Equal(3))
		f.setResting("c", true)
		Expect(reads(ctx, f)).To(BeZero())
	})

	It("are read if they have slots, which end", func(ctx SpecContext) {
		f := newFakeFixture(ctx, automatic(), "a", "b")
		restingWithSlot(ctx, f)
		for range 3 {
			reads(ctx, f)
		}
		Expect(f.takeWrites()).To(ContainElement(deleteSlots))
		Expect(f.fleet.View().Upgrades.Done).To(Equal(2))
		Expect(reads(ctx, f)).To(BeZero())
	})

	It("keep the slot that another manager grants before their last one ends", func(ctx SpecContext) {
		f := newFakeFixture(ctx, automatic(), "a", "b")
		slots := restingWithSlot(ctx, f)
		granted := false
		f.refuse = func(verb string, object client.Object, _ []byte) error {
			if verb != "delete" || object.GetName() != labels.UpgradeSlots {
				return nil
			}
			granted = true
			slots.Data["b"] = slotOf(f.node(ctx, "b"))
			return f.client.Update(ctx, slots)
		}
		for range 3 {
			if !granted {
				_, err := f.pass(ctx, f.manager, time.Second)
				Expect(err).NotTo(HaveOccurred(), "a conflict is no error: the pass is repeated")
			}
		}
		Expect(granted).To(BeTrue(), "the manager deletes the slots")
		Expect(f.client.Get(ctx, client.ObjectKeyFromObject(slots), slots)).To(Succeed())
		Expect(slots.Data).To(HaveKey("b"))
	})

	It("are in no report without a policy", func(ctx SpecContext) {
		f := newFakeFixture(ctx, automatic(), "a")
		f.setResting("a", false)
		reads(ctx, f)
		f.deleted = true
		f.play(ctx)
		f.setResting("a", false)
		reads(ctx, f)
		Expect(f.reported()).To(Equal("none"))
	})
})
