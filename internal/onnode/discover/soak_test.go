package discover

import (
	"fmt"
	"log/slog"
	"runtime"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi/nodeapitest"
	"github.com/clusterpolicy/gpu-operator/test/heap"
)

// The memory of the discovery does not grow in 1,000 rounds, which are three days of resyncs, while what GPU Feature
// Discovery writes changes each time.
func TestDiscoveryDoesNotGrow(t *testing.T) {
	g := NewWithT(t)
	m := withH100s(t, newMachine(t, "6.8.0-45-generic", ubuntu))
	server := nodeapitest.Start(t, "node-a")
	d, _ := newDiscovery(t, m, server)
	d.Log = slog.New(slog.DiscardHandler)
	r := newRunner(d)
	var settled int64
	var goroutines int
	for round := range 1000 {
		m.putFeatures(t, fmt.Sprintf("nvidia.com/gpu.product=H100-%d\nnvidia.com/gpu.count=8\n", round))
		r.nextSync = time.Time{}
		r.runRound(t.Context())
		g.Expect(r.reason).To(BeEmpty())
		if round == 100 {
			settled, goroutines = heap.Live(), runtime.NumGoroutine()
		}
	}
	g.Expect(server.Labels()).To(HaveKeyWithValue("nvidia.com/gpu.product", "H100-999"))
	grown := heap.Live() - settled
	t.Logf("%d kB more than after 100 rounds", grown>>10)
	g.Expect(grown).To(BeNumerically("<", 100<<10), "bytes")
	g.Eventually(runtime.NumGoroutine).WithTimeout(time.Minute).Should(BeNumerically("<=", goroutines))
	runtime.KeepAlive(r)
}
