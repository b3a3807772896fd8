package upgrade_test

import (
	"context"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

var _ = Describe("An annotation that cannot be decoded", func() {
	It("is one Event however often it is written, as the Events of all Nodes have one limit", func(ctx SpecContext) {
		f := newFakeFixture(ctx, automatic(), "a")
		replace := func(text string) {
			GinkgoHelper()
			f.update(ctx, "a", func(node *corev1.Node) { node.Annotations[labels.UpgradeRecord] = text })
			for range maxPasses {
				f.play(ctx)
				_, err := f.pass(ctx, f.manager, time.Second)
				Expect(err).NotTo(HaveOccurred())
				if f.node(ctx, "a").Annotations[labels.UpgradeRecord] != text {
					return
				}
			}
			Fail("the annotation is not replaced")
		}
		f.target = "new"
		f.upgraded(ctx)
		f.takeEvents()
		for range 10 {
			replace("{")
		}
		Expect(f.takeEvents()).To(Equal(1))
		replace("[]")
		Expect(f.takeEvents()).To(Equal(1), "another text")
	})
})

// noteBlocked returns the messages of the Events about what blocks the evictions of the nodes, in order.
func (f *fixture) noteBlocked(ctx context.Context) []string {
	GinkgoHelper()
	list, messages := &corev1.EventList{}, []string{}
	Expect(f.client.List(ctx, list)).To(Succeed())
	for i := range list.Items {
		if message, is := strings.CutPrefix(list.Items[i].Message, "the upgrade is blocked: "); is {
			Expect(list.Items[i]).To(And(HaveField("Type", corev1.EventTypeWarning), HaveField("Reason", "GPUDriverUpgrade"),
				HaveField("InvolvedObject.Name", "a")))
			messages = append(messages, message)
		}
	}
	slices.Sort(messages)
	return messages
}

var _ = Describe("What blocks an eviction", func() {
	It("is an Event of type Warning for each cause, two in a round at most", func(ctx SpecContext) {
		spec := automatic()
		spec.Driver.UpgradePolicy.PodDeletion.Force = new(false)
		f := newFakeFixture(ctx, spec, "a")
		const rule = " needs spec.driver.upgradePolicy.podDeletion.force: it has no controller"
		blockedBy := func(name string) {
			GinkgoHelper()
			f.addUser(ctx, name, "a", 8)
			f.target = "new"
			f.until(ctx, "a pod-deletion-required: UpgradeBlocked pod default/"+name+rule+" (held)")
			for range 5 {
				_, err := f.pass(ctx, f.manager, 10*time.Second)
				Expect(err).NotTo(HaveOccurred())
			}
			Expect(f.client.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: users, Name: name}})).To(Succeed())
		}
		blockedBy("first")
		Expect(f.noteBlocked(ctx)).To(Equal([]string{"pod default/first" + rule}))
		blockedBy("second")
		Expect(f.noteBlocked(ctx)).To(Equal([]string{"pod default/first" + rule, "pod default/second" + rule}))
		blockedBy("third")
		Expect(f.noteBlocked(ctx)).To(HaveLen(2), "a third cause in the round has none")
	})
})
