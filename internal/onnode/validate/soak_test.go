package validate

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/heap"
)

// The memory of the checks for losses does not grow in two weeks, in which the driver is replaced each day.
func TestRecheckDoesNotGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newRecheckedNode(t)
		r := n.recheck()
		r.Interval, r.Confirm = DefaultRecheckInterval, DefaultRecheckConfirm
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		var settled int64
		var goroutines int
		for day := range 14 {
			time.Sleep(23 * time.Hour)
			n.Expect(n.markers.Remove(labels.MarkerDriver)).To(Succeed())
			time.Sleep(time.Hour)
			n.Expect(n.markers.Write(labels.MarkerDriver, nil, "")).To(Succeed())
			synctest.Wait()
			if day == 1 {
				settled, goroutines = heap.Live(), runtime.NumGoroutine()
			}
		}
		n.Expect(heap.Live()-settled).To(BeNumerically("<", 100<<10), "bytes that are kept")
		n.Expect(runtime.NumGoroutine()).To(BeNumerically("<=", goroutines))
		cancel()
		n.Expect(<-done).To(Succeed())
	})
}
