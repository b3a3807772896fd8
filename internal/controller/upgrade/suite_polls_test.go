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

// readsOf runs passes as events of other nodes cause them, each 200 ms, and returns how often pods were read.
func (f *fixture) readsOf(ctx context.Context, passes int) int {
	GinkgoHelper()
	f.takePodReads()
	for range passes {
		_, err := f.pass(ctx, f.manager, 200*time.Millisecond)
		Expect(err).NotTo(HaveOccurred())
	}
	return f.takePodReads()
}

var _ = Describe("The pods of users that a node waits for", func() {
	const slow = 10 * time.Second
	newWaiting := func(ctx context.Context) *fixture {
		GinkgoHelper()
		spec := automatic()
		spec.Driver.UpgradePolicy.WaitForCompletion = &v1.WaitForCompletionSpec{PodSelector: "app=train"}
		f := newFakeFixture(ctx, spec, "a")
		f.addUser(ctx, "train", "a", 8)
		f.target = "new"
		f.until(ctx, "a wait-for-jobs-required: UpgradeWaitingForJobs waits for pod default/train")
		_, err := f.pass(ctx, f.manager, slow)
		Expect(err).NotTo(HaveOccurred())
		return f
	}

	It("are read each two seconds, however many passes there are", func(ctx SpecContext) {
		f := newWaiting(ctx)
		Expect(f.readsOf(ctx, 50)).To(Equal(5), "in 10 seconds")
	})

	It("are read two seconds later at the latest, without an event", func(ctx SpecContext) {
		f := newWaiting(ctx)
		wait, err := f.pass(ctx, f.manager, 500*time.Millisecond)
		Expect(err).NotTo(HaveOccurred())
		Expect(wait).To(Equal(1500 * time.Millisecond))
		f.deletePod(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: users, Name: "train"}})
		f.takeWrites()
		_, err = f.pass(ctx, f.manager, wait)
		Expect(err).NotTo(HaveOccurred())
		Expect(f.takeWrites()).To(ContainElement(patchNode), "it goes on")
	})

	It("are read at once after the Node, the policy or a pod was changed", func(ctx SpecContext) {
		f := newWaiting(ctx)
		f.update(ctx, "a", func(node *corev1.Node) { node.Labels["example.com/changes"] = "1" })
		Expect(f.readsOf(ctx, 1)).To(Equal(1), "the Node")
		Expect(f.readsOf(ctx, 1)).To(BeZero())
		f.spec.Driver.UpgradePolicy.PodDeletion.Force = new(false)
		f.play(ctx)
		Expect(f.readsOf(ctx, 1)).To(Equal(1), "the policy")
		Expect(f.readsOf(ctx, 1)).To(BeZero())
		f.spec.Driver.UpgradePolicy.WaitForCompletion = nil
		f.spec.Driver.UpgradePolicy.PodDeletion.Force = new(true)
		f.play(ctx)
		f.blocked.Store(true)
		f.until(ctx, "a pod-deletion-required: UpgradeBlocked PDB default/train allows 0 disruptions: "+
			"pod default/train (held)")
		f.blocked.Store(false)
		f.takeWrites()
		_, err := f.pass(ctx, f.manager, time.Minute)
		Expect(err).NotTo(HaveOccurred())
		Expect(f.takeWrites()).To(ContainElement(evictPod))
		Expect(f.readsOf(ctx, 1)).To(Equal(1), "the eviction")
	})

	It("are read at each pass until the upgrade begins, so that a job that has started meanwhile is waited for", func(
		ctx SpecContext,
	) {
		spec := automatic()
		spec.Driver.UpgradePolicy.WaitForCompletion = &v1.WaitForCompletionSpec{PodSelector: "app=train"}
		// Pods of the fake API server have no time of creation.
		spec.Driver.UpgradePolicy.Timeouts = &v1.UpgradeTimeoutsSpec{ImagePullSeconds: new(v1.TimeoutSeconds(0))}
		f := newFakeFixture(ctx, spec, "a")
		f.addUser(ctx, "web", "a", 0)
		f.target = "new"
		for range maxPasses {
			f.play(ctx)
			_, err := f.pass(ctx, f.manager, slow)
			Expect(err).NotTo(HaveOccurred())
			if f.pullPod(ctx, "a") != nil {
				break
			}
		}
		_, err := f.pass(ctx, f.manager, slow)
		Expect(err).NotTo(HaveOccurred())
		Expect(f.node(ctx, "a").Labels).To(HaveKeyWithValue(labels.UpgradeState, "upgrade-required"),
			"the images are being pulled")

		f.addUser(ctx, "train", "a", 8)
		f.finishPull(ctx, "a")
		_, err = f.pass(ctx, f.manager, time.Second)
		Expect(err).NotTo(HaveOccurred())
		Expect(f.node(ctx, "a").Labels).To(HaveKeyWithValue(labels.UpgradeState, "wait-for-jobs-required"))
	})
})
