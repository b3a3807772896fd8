package controller_test

import (
	"runtime"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/heap"
)

// No state of deleted nodes is kept: after 2,000 created and deleted nodes the heap is as large as after 400.
func TestNodeChurn(t *testing.T) {
	if testing.Short() {
		t.Skip("takes ten seconds; make test-envtest runs it")
	}
	const cycles, each = 10, 200
	g := NewWithT(t)
	o := newOperator()
	var settled int64
	var goroutines int
	for cycle := 1; cycle <= cycles; cycle++ {
		names := o.addNodes(cycle*each, each)
		o.makeReady(names)
		g.Expect(o.policyStatus().State).To(Equal(v1.StateReady), "cycle %d: %v", cycle, o.policyStatus().Conditions)
		g.Expect(o.fleet.Names()).To(ConsistOf(names), "cycle %d", cycle)
		o.removeNodes(names)
		o.reconcileNodes(names)
		o.advance(time.Minute)
		o.reconcileAll()
		g.Expect(o.fleet.Names()).To(BeEmpty(), "cycle %d", cycle)
		g.Expect(o.fleet.Starting()).To(BeZero(), "cycle %d", cycle)
		live, running := heap.Live(), runtime.NumGoroutine()
		t.Logf("cycle %d: heap %d kB, %d goroutines", cycle, live>>10, running)
		switch cycle {
		case 2:
			settled, goroutines = live, running
		case cycles:
			g.Expect(live).To(BeNumerically("<=", settled+settled/20))
			g.Expect(running).To(BeNumerically("<=", goroutines))
		}
	}
	runtime.KeepAlive(o)
}
