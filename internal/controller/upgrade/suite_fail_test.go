package upgrade_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// What the API server may answer once.
var answers = map[string]error{
	"conflict":  apierrors.NewConflict(schema.GroupResource{Resource: "x"}, "x", errors.New("it has changed")),
	"timeout":   apierrors.NewTimeoutError("the request took too long", 1),
	"internal":  apierrors.NewInternalError(errors.New("etcd is full")),
	"not found": apierrors.NewNotFound(schema.GroupResource{Resource: "x"}, "x"),
}

// newLoaded returns a fleet of two nodes with pods of users, whose validators are older than any new driver.
func newLoaded(ctx context.Context) *fixture {
	GinkgoHelper()
	f := newFakeFixture(ctx, automatic(), "a", "b")
	f.addUser(ctx, "train", "a", 8)
	f.addUser(ctx, "infer", "b", 1)
	f.addUser(ctx, "web", "b", 0)
	return f
}

// expectEnd expects the end of an undisturbed upgrade.
func (f *fixture) expectEnd(ctx context.Context) {
	GinkgoHelper()
	Expect(f.userPods(ctx)).To(ConsistOf("web"))
	for _, name := range f.nodes {
		node := f.node(ctx, name)
		Expect(node.Annotations).NotTo(HaveKey(labels.UpgradeInitialCordon))
		Expect(node.Annotations[labels.UpgradeRecord]).To(ContainSubstring(`"state":"upgrade-done"`))
	}
}

var _ = Describe("A call that fails once", func() {
	for what, answer := range answers {
		for _, kind := range []string{
			patchNode, createSlots, patchSlots, deleteSlots, createPull, deletePull, deleteDriver, deleteValidator, evictPod,
			createEvent, readSlots, readPods,
		} {
			if kind == patchSlots {
				continue // Two nodes in turn: see the next spec.
			}
			It(fmt.Sprintf("%s: %s", kind, what), func(ctx SpecContext) {
				f := newLoaded(ctx)
				f.failNext(kind, answer)
				f.upgraded(ctx)
				Expect(f.failedAll()).To(BeTrue(), "the call was made")
				f.expectEnd(ctx)
			})
		}
		It("patch slots: "+what, func(ctx SpecContext) {
			spec := automatic()
			spec.Driver.UpgradePolicy.MaxParallelUpgrades = new(int32(0))
			f := newFakeFixture(ctx, spec, "a", "b")
			f.addUser(ctx, "train", "a", 8)
			f.addUser(ctx, "web", "b", 0)
			f.failNext(patchSlots, answer)
			f.upgraded(ctx)
			Expect(f.failedAll()).To(BeTrue(), "the call was made")
			f.expectEnd(ctx)
		})
	}
})

var _ = Describe("A manager that crashes", func() {
	It("at any write, before or after it: another one completes the upgrade", func(ctx SpecContext) {
		f := newLoaded(ctx)
		f.upgraded(ctx)
		f.expectEnd(ctx)
		writes := len(f.takeWrites())
		Expect(writes).To(BeNumerically(">", 15))
		for at := 1; at <= writes; at++ {
			for _, after := range []bool{false, true} {
				By(fmt.Sprintf("write %d of %d, made: %t", at, writes, after))
				f := newLoaded(ctx)
				first := f.manager
				f.crashAt, f.crashAfter = at, after
				f.upgraded(ctx)
				Expect(first.crashed).To(BeTrue())
				f.expectEnd(ctx)
			}
		}
	}, NodeTimeout(5*time.Minute))
})

var _ = Describe("Two managers at once", func() {
	It("keep the budget", func(ctx SpecContext) {
		f := newFixture(ctx, automatic(), "a", "b", "c", "d")
		f.addUser(ctx, "train", "a", 8)
		other := f.newManager()
		most, mu := 0, sync.Mutex{}
		watch := func(ctx context.Context, _ string) {
			mu.Lock()
			defer mu.Unlock()
			most = max(most, f.cordoned(ctx))
		}
		f.afterWrite, other.afterWrite = watch, watch
		f.target = "new"
		for range maxPasses {
			f.play(ctx)
			f.clock.SetTime(f.clock.Now().Add(time.Second))
			var both sync.WaitGroup
			for _, m := range []*manager{f.manager, other} {
				both.Go(func() {
					defer GinkgoRecover()
					_, err := f.pass(ctx, m, 0)
					Expect(err).NotTo(HaveOccurred())
				})
			}
			both.Wait()
			if f.isUpgraded(ctx) {
				break
			}
		}
		Expect(f.isUpgraded(ctx)).To(BeTrue(), f.reported())
		Expect(most).To(Equal(1))
		Expect(f.count(patchNode)).To(BeNumerically(">", 0))
		Expect(other.count(patchNode)).To(BeNumerically(">", 0))
	})
})

var _ = Describe("A node", func() {
	It("that was replaced under its name is not patched for the old one", func(ctx SpecContext) {
		f := newFixture(ctx, automatic(), "a")
		f.target = "new"
		f.play(ctx)
		_, err := f.pass(ctx, f.manager, time.Second)
		Expect(err).NotTo(HaveOccurred())
		recorded := f.node(ctx, "a").Annotations[labels.UpgradeRecord]
		Expect(f.client.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}})).To(Succeed())
		f.addNode(ctx, "a")
		f.update(ctx, "a", func(node *corev1.Node) { node.Annotations = map[string]string{labels.UpgradeRecord: recorded} })
		f.upgraded(ctx)
		Expect(f.node(ctx, "a").Annotations[labels.UpgradeRecord]).To(ContainSubstring(string(f.node(ctx, "a").UID)))
	})
})
