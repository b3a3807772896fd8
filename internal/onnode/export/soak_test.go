package export

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi"
	"github.com/clusterpolicy/gpu-operator/test/heap"
)

// The memory of the exporter does not grow in two days with a scrape each minute, while parts of the stack are
// validated and no longer are, and checks fail for another reason each time.
func TestExporterDoesNotGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		var checks atomic.Int64
		options := node(t)
		options.DriverInterval = DefaultDriverInterval
		options.CheckDriver = func(context.Context) ([]marker.Assignment, error) {
			attempt := checks.Add(1)
			if attempt%3 == 0 {
				return nil, nil
			}
			return nil, fmt.Errorf("attempt %d failed", attempt)
		}
		options.Resources = func(context.Context) (nodeapi.Resources, error) {
			return nodeapi.Resources{}, fmt.Errorf("request %d failed", checks.Load())
		}
		e := New(options)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			e.Run(ctx)
		}()
		metrics := handler(e)
		var settled int64
		var goroutines int
		for minute := range 2 * 24 * 60 {
			if minute%20 == 0 {
				g.Expect(options.Markers.Write(labels.MarkerDriver, nil, "")).To(Succeed())
			} else if minute%20 == 10 {
				g.Expect(options.Markers.Remove(labels.MarkerDriver)).To(Succeed())
			}
			answer := httptest.NewRecorder()
			metrics.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
			g.Expect(answer.Code).To(Equal(http.StatusOK))
			time.Sleep(time.Minute)
			synctest.Wait()
			if minute == 6*60 {
				settled, goroutines = heap.Live(), runtime.NumGoroutine()
			}
		}
		grown := heap.Live() - settled
		t.Logf("%d checks of the driver; %d kB more than after 6 hours", checks.Load(), grown>>10)
		g.Expect(grown).To(BeNumerically("<", 100<<10), "bytes")
		g.Expect(runtime.NumGoroutine()).To(BeNumerically("<=", goroutines))
		g.Expect(checks.Load()).To(BeNumerically("~", 2*24*60, 2))
		cancel()
		<-done
	})
}
