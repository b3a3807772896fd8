package healthaction_test

import (
	"runtime"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/test/heap"
)

var _ = Describe("The memory of passes", func() {
	DescribeTable("releases what a pass has read when it ends", func(ctx SpecContext, breaks func(*manager)) {
		f := newFakeFixture(ctx, "a", "b")
		f.fails(ctx, "a", "Reset", 2*time.Hour)
		f.settle(ctx)
		Expect(f.acted(ctx)).To(Equal([]string{"tainted", "-"}))
		f.fails(ctx, "b", "Reboot", time.Hour)
		if breaks != nil {
			breaks(f.manager)
		}
		var alive []func() bool
		for _, class := range []string{"Reset", "Reboot", "Reset"} {
			f.fails(ctx, "a", class, 2*time.Hour)
			f.clock.SetTime(f.clock.Now().Add(time.Minute))
			is, _, err := f.reconciler.ReconcileWeakly(ctx)
			Expect(err != nil).To(Equal(f.unread != nil), "%v", err)
			alive = append(alive, is)
		}
		Expect(f.text("a")).NotTo(BeEmpty(), "the verdicts are published")
		heap.Collect()
		for i, is := range alive {
			Expect(is()).To(BeFalse(), "scope of pass %d", i+1)
		}
		runtime.KeepAlive(f)
	},
		Entry("that acts", nil),
		Entry("whose writes fail", func(m *manager) { m.refuse = errUnavailable }),
		Entry("that cannot read the nodes", func(m *manager) { m.unread = errUnavailable }),
	)
})
