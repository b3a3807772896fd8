package upgrade_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// maxPasses is more than any upgrade in these specs needs.
const maxPasses = 200

// upgraded sets the target "new" and runs passes until all nodes are upgraded.
func (f *fixture) upgraded(ctx context.Context) {
	GinkgoHelper()
	f.target = "new"
	for range maxPasses {
		f.play(ctx)
		_, err := f.pass(ctx, f.manager, time.Second)
		if f.crashed {
			// Another process continues.
			f.manager = f.newManager()
		} else if err != nil {
			Expect(apierrors.ReasonForError(err)).NotTo(Equal(metav1.StatusReasonUnknown), "%v", err)
		}
		if f.isUpgraded(ctx) {
			return
		}
	}
	Fail("not upgraded; the report is " + f.reported())
}

// isUpgraded reports whether all nodes have the target, and nothing is left of the upgrade.
func (f *fixture) isUpgraded(ctx context.Context) bool {
	GinkgoHelper()
	for _, name := range f.nodes {
		node := f.node(ctx, name)
		pod := &corev1.Pod{}
		key := client.ObjectKey{Namespace: cluster.OperatorNamespace, Name: driver + "-" + name}
		if err := f.client.Get(ctx, key, pod); err != nil || pod.Annotations[labels.TemplateDigest] != f.target ||
			node.Labels[labels.UpgradeState] != "upgrade-done" || node.Spec.Unschedulable || f.pullPod(ctx, name) != nil {
			return false
		}
	}
	err := f.client.Get(ctx, client.ObjectKey{Namespace: cluster.OperatorNamespace, Name: labels.UpgradeSlots},
		&corev1.ConfigMap{})
	return apierrors.IsNotFound(err)
}

// cordoned returns how many nodes are cordoned.
func (f *fixture) cordoned(ctx context.Context) int {
	GinkgoHelper()
	nodes, n := &corev1.NodeList{}, 0
	Expect(f.client.List(ctx, nodes)).To(Succeed())
	for i := range nodes.Items {
		if nodes.Items[i].Spec.Unschedulable {
			n++
		}
	}
	return n
}

var _ = Describe("An upgrade of three nodes", func() {
	It("runs where nothing is to offer the GPUs, one node at a time", func(ctx SpecContext) {
		f := newFakeFixture(ctx, automatic(), "a", "b", "c")
		f.unoffered = true
		most := 0
		f.afterWrite = func(ctx context.Context, _ string) { most = max(most, f.cordoned(ctx)) }
		f.upgraded(ctx)
		Expect(most).To(Equal(1))
	})

	It("evicts the pods with GPUs, one node at a time, and leaves nothing behind", func(ctx SpecContext) {
		f := newFixture(ctx, automatic(), "a", "b", "c")
		f.addUser(ctx, "train", "a", 8)
		f.addUser(ctx, "infer", "c", 1)
		f.addUser(ctx, "web", "a", 0)
		most := 0
		f.afterWrite = func(ctx context.Context, _ string) { most = max(most, f.cordoned(ctx)) }
		f.upgraded(ctx)
		Expect(most).To(Equal(1))
		Expect(f.userPods(ctx)).To(ConsistOf("web"))
		Expect(f.count(evictPod)).To(Equal(2))
		Expect(f.count(deleteDriver)).To(Equal(3))
		Expect(f.count(patchNode)).To(BeNumerically("<=", 18), "six for each node")
		f.takeWrites()
		for range 5 {
			f.play(ctx)
			wait, err := f.pass(ctx, f.manager, time.Minute)
			Expect(err).NotTo(HaveOccurred())
			Expect(wait).To(BeZero())
		}
		Expect(f.takeWrites()).To(BeEmpty(), "at rest nothing is written")
	})

	It("writes nothing without an outdated driver", func(ctx SpecContext) {
		f := newFixture(ctx, automatic(), "a", "b")
		_, err := f.pass(ctx, f.manager, time.Second)
		Expect(err).NotTo(HaveOccurred())
		Expect(f.takeWrites()).To(BeEmpty())
		Expect(f.fleet.View().Upgrades).To(HaveField("Nodes", BeEmpty()))
	})
})
