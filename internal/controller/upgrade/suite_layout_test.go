package upgrade_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

const twoLarge = "all-3g.40gb"

// relayout returns nodes that have a layout of the operator, and are to get another one. A pod uses the GPUs of each.
func relayout(ctx context.Context, nodes ...string) *fixture {
	GinkgoHelper()
	f := newFakeFixture(ctx, automatic(), nodes...)
	for _, name := range nodes {
		f.update(ctx, name, func(node *corev1.Node) {
			node.Labels[labels.MIGCapable], node.Labels[labels.MIGConfig] = labels.True, labels.MIGAllDisabled
			node.Labels[labels.MIGConfigState] = labels.MIGStateSuccess
			node.Annotations = map[string]string{labels.MIGConfigWritten: labels.MIGAllDisabled}
		})
		f.addUser(ctx, "train-"+name, name, 1)
	}
	f.spec.MIGManager = &v1.MIGManagerSpec{Config: &v1.MIGManagerConfigSpec{Default: new(twoLarge)}}
	f.play(ctx)
	return f
}

// passes runs a pass every second for this time.
func (f *fixture) passes(ctx context.Context, during time.Duration) {
	GinkgoHelper()
	for range int(during / time.Second) {
		_, err := f.pass(ctx, f.manager, time.Second)
		Expect(err).NotTo(HaveOccurred())
	}
}

func (f *fixture) layout(ctx context.Context, node string) string {
	GinkgoHelper()
	return f.node(ctx, node).Labels[labels.MIGConfig]
}

var _ = Describe("The pods that a MIG layout waits for", func() {
	It("are read every 30 seconds, and only while a node may get a layout", func(ctx SpecContext) {
		f := relayout(ctx, "a", "b", "c")
		f.passes(ctx, time.Minute)
		Expect(f.takePodReads()).To(Equal(3 * 2))

		f.deletePod(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: users, Name: "train-a"}})
		f.passes(ctx, 32*time.Second)
		Expect(f.layout(ctx, "a")).To(Equal(twoLarge))
		f.play(ctx)
		f.passes(ctx, time.Second)
		f.takePodReads()
		f.passes(ctx, 10*time.Minute)
		Expect(f.takePodReads()).To(BeZero(), "a has the only slot")

		f.passes(ctx, 6*time.Minute)
		Expect(f.takePodReads()).To(BeNumerically(">=", 2), "the slot of a has ended")
		f.spec.Paused = new(true)
		f.play(ctx)
		f.passes(ctx, 10*time.Minute)
		Expect(f.takePodReads()).To(BeZero(), "the policy is paused")
	})
})
