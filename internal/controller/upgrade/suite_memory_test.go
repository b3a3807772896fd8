package upgrade_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/clusterpolicy/gpu-operator/test/heap"
)

// newStuck returns a fixture with a node whose upgrade has failed, since its pods could not be evicted in time, and
// one whose upgrade is in progress.
func newStuck(ctx context.Context) *fixture {
	GinkgoHelper()
	spec := automatic()
	spec.Driver.UpgradePolicy.MaxParallelUpgrades = new(int32(0))
	f := newFakeFixture(ctx, spec, "a", "b")
	f.blocked.Store(true)
	f.addUser(ctx, "train", "a", 8)
	f.addUser(ctx, "infer", "b", 1)
	f.target = "new"
	const maxPasses = 60
	for range maxPasses {
		f.play(ctx)
		_, err := f.pass(ctx, f.manager, 10*time.Second)
		Expect(err).NotTo(HaveOccurred())
		if f.isStuck() {
			return f
		}
	}
	Fail("the report is " + f.reported())
	return nil
}

// isStuck reports whether the upgrade of one node has failed, and that of the other is in progress.
func (f *fixture) isStuck() bool {
	return strings.Contains(f.reported(), "a upgrade-failed") && strings.Contains(f.reported(), "b pod-deletion-required")
}

var _ = Describe("The memory of passes", func() {
	DescribeTable("releases what a pass has read when it ends", func(ctx SpecContext, failing string) {
		f := newStuck(ctx)
		var alive []func() bool
		for _, value := range []string{"x", "y", "z"} {
			f.update(ctx, "a", func(node *corev1.Node) { node.Labels["example.com/changes"] = value })
			f.play(ctx)
			if failing != "" {
				f.failNext(failing, apierrors.NewInternalError(errors.New("etcd is full")))
			}
			f.clock.SetTime(f.clock.Now().Add(time.Second))
			is, _, err := f.reconciler.ReconcileWeakly(ctx)
			Expect(err != nil).To(Equal(failing != ""), "%v", err)
			Expect(f.failedAll()).To(BeTrue(), "the call was made")
			alive = append(alive, is)
		}
		Expect(f.isStuck()).To(BeTrue(), "%s", f.reported())
		heap.Collect()
		for i, is := range alive {
			Expect(is()).To(BeFalse(), "scope of pass %d", i+1)
		}
		runtime.KeepAlive(f)
	},
		Entry("that succeeds", ""),
		Entry("that cannot read the slots", readSlots),
		Entry("that cannot read the pods of a node", listPods),
	)
})
