package upgrade_test

import (
	"runtime"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("The memory of passes", func() {
	It("releases what a pass has read when the next one ends", func(ctx SpecContext) {
		f := newFakeFixture(ctx, automatic(), "a", "b")
		var alive []func() bool
		for range 3 {
			f.clock.SetTime(f.clock.Now().Add(time.Second))
			is, _, err := f.reconciler.ReconcileWeakly(ctx)
			Expect(err).NotTo(HaveOccurred())
			alive = append(alive, is)
		}
		Expect(f.reported()).NotTo(Equal("none"), "the report of the last pass is published")
		runtime.GC()
		runtime.GC()
		for i, is := range alive {
			Expect(is()).To(BeFalse(), "scope of pass %d", i+1)
		}
		runtime.KeepAlive(f)
	})
})
