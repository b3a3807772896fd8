package healthaction_test

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterpolicy/gpu-operator/test/heap"
)

const (
	// soakPasses is the number of passes of the soak, and settledPasses that after which nothing more may be kept.
	soakPasses, settledPasses = 2000, 200
	// maxGrowth limits how many bytes more may live after the soak. That is less than 3 kB for each pass: a pass reads
	// several times as much.
	maxGrowth = 5 << 20
)

// soakPass runs a pass after a change of the cluster: faults come, are acted on, and go, labels change, and nodes are
// replaced by others, some just after a write to them, and some while writes to them fail.
func (f *fixture) soakPass(ctx context.Context, pass int) {
	GinkgoHelper()
	i, leavesAt := pass/20%len(f.nodes), []int{-1, 1, 11}[pass/20%3]
	if pass%20 == leavesAt {
		f.replaceNode(ctx, i, fmt.Sprint("node-", pass))
	}
	node := f.nodes[i]
	switch pass % 20 {
	case 0:
		f.fails(ctx, node, []string{"Reset", "Reboot"}[pass/20%2], 2*time.Hour)
	case 5:
		if leavesAt != 1 {
			Expect(f.acted(ctx)).To(ContainElement(Not(Equal("-"))))
		}
		f.update(ctx, node, func(node *corev1.Node) { node.Labels["example.com/changes"] = fmt.Sprint(pass) })
	case 8:
		f.refuse = errUnavailable
	case 10:
		f.recovers(ctx, node)
	case 12:
		f.refuse = nil
	}
	f.clock.SetTime(f.clock.Now().Add(time.Minute))
	f.pass(ctx, f.manager)
	f.patches = nil
}

var _ = Describe("The memory of many passes", func() {
	It("does not grow", func(ctx SpecContext) {
		quiet := log.IntoContext(ctx, logr.Discard())
		f := newFakeFixture(quiet, "a", "b", "c", "d", "e")
		var settled int64
		var goroutines, mostVersions, mostFailures int
		for pass := range soakPasses {
			f.soakPass(quiet, pass)
			versions, failures := f.reconciler.Remembered()
			mostVersions, mostFailures = max(mostVersions, versions), max(mostFailures, failures)
			if pass == settledPasses {
				settled, goroutines = heap.Live(), runtime.NumGoroutine()
			}
		}
		grown := heap.Live() - settled
		GinkgoWriter.Printf("heap after %d passes: %d kB, and %d kB more at the end\n", settledPasses, settled>>10, grown>>10)
		Expect(grown).To(BeNumerically("<", maxGrowth))
		Expect(mostVersions).To(And(BeNumerically(">", 0), BeNumerically("<=", len(f.nodes))), "nodes that were written")
		Expect(mostFailures).To(And(BeNumerically(">", 0), BeNumerically("<=", len(f.nodes))), "nodes with a failed write")
		Eventually(runtime.NumGoroutine).WithTimeout(time.Minute).Should(BeNumerically("<=", goroutines))
		runtime.KeepAlive(f)
	})
})
