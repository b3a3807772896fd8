package upgrade_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
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
