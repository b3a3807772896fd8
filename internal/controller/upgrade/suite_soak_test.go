package upgrade_test

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
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

// soakPass runs a pass after changes of the cluster: each 200 passes there is a new driver, which is installed by the
// next ones, a label changes each 5 passes, and pods of users come each 10 and go.
func (f *fixture) soakPass(ctx context.Context, pass int) {
	GinkgoHelper()
	node, phase := f.nodes[pass%len(f.nodes)], pass%200
	if phase == 0 {
		f.target = fmt.Sprint("driver-", pass)
	}
	if pass%5 == 0 {
		f.update(ctx, node, func(node *corev1.Node) { node.Labels["example.com/changes"] = fmt.Sprint(pass) })
	}
	if pass%10 == 0 {
		f.addUser(ctx, fmt.Sprint("train-", pass), node, 1)
	}
	if phase < 40 {
		f.play(ctx)
	}
	_, err := f.pass(ctx, f.manager, 10*time.Second)
	Expect(err).NotTo(HaveOccurred())
	if phase == 40 {
		Expect(f.isUpgraded(ctx)).To(BeTrue(), "%s", f.reported())
	}
	if phase == 199 {
		// As the API server drops old Events, and as users end their pods.
		Expect(f.client.DeleteAllOf(ctx, &corev1.Event{}, client.InNamespace("default"))).To(Succeed())
		Expect(f.client.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(users))).To(Succeed())
		f.takeWrites()
	}
}

var _ = Describe("The memory of many passes", func() {
	It("does not grow", func(ctx SpecContext) {
		quiet := log.IntoContext(ctx, logr.Discard())
		f := newFakeFixture(quiet, automatic(), "a", "b")
		var settled int64
		var goroutines int
		for pass := range soakPasses {
			f.soakPass(quiet, pass)
			if pass == settledPasses {
				settled, goroutines = heap.Live(), runtime.NumGoroutine()
			}
		}
		grown := heap.Live() - settled
		GinkgoWriter.Printf("heap after %d passes: %d kB, and %d kB more at the end\n", settledPasses, settled>>10, grown>>10)
		Expect(grown).To(BeNumerically("<", maxGrowth))
		Eventually(runtime.NumGoroutine).WithTimeout(time.Minute).Should(BeNumerically("<=", goroutines))
		runtime.KeepAlive(f)
	})
})
