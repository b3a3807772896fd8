package validate

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// silent is an API server whose Node has that status, and whose watches end when end is closed, without
// a word. It counts requests.
type silent struct {
	status         string
	end            chan struct{}
	reads, watches atomic.Int32
}

func (s *silent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("watch") == "true" {
		s.watches.Add(1)
		_ = http.NewResponseController(w).Flush()
		select {
		case <-s.end:
		case <-r.Context().Done():
		}
		return
	}
	status := s.status
	select {
	case <-s.end:
		status = `{"allocatable":{"nvidia.com/gpu":"8"}}`
	default:
	}
	s.reads.Add(1)
	_, _ = w.Write([]byte(`{"metadata":{"resourceVersion":"7"},"status":` + status + `}`))
}

// A thousand nodes may wait at the same time, so that a watch costs nothing while nothing changes.
func TestPluginWatchesUntilTheServerEndsThat(t *testing.T) {
	g := NewWithT(t)
	api := &silent{status: `{}`, end: make(chan struct{})}
	run, _ := prover(t, Plugin{Node: "node-a", Client: clientOf(t, api)}.Check)
	run.FailAfter = time.Millisecond // It does not count: the device plugin is on its way.
	done := make(chan error, 1)
	go func() { done <- run.Prove(t.Context()) }()
	g.Eventually(api.watches.Load, "5s").Should(BeEquivalentTo(1))
	g.Consistently(api.reads.Load, 50*run.MaxInterval).Should(BeEquivalentTo(1))
	g.Expect(api.watches.Load()).To(BeEquivalentTo(1))

	close(api.end)
	g.Eventually(done, "5s").Should(Receive(BeNil()), "it looks again")
	g.Expect(api.reads.Load()).To(BeEquivalentTo(2))
}

// A Node that offers what does not count is a failure, which is to be said though the Node stays as it is.
func TestPluginGivesUpThoughTheNodeDoesNotChange(t *testing.T) {
	g := NewWithT(t)
	api := &silent{status: `{"allocatable":{"nvidia.com/mig-1g.5gb":"7"}}`, end: make(chan struct{})}
	run, _ := prover(t, Plugin{Node: "node-a", Strategy: MIGSingle, Client: clientOf(t, api)}.Check)
	run.FailAfter = 100 * time.Millisecond
	done := make(chan error, 1)
	go func() { done <- run.Prove(t.Context()) }()
	g.Eventually(done, "5s").Should(Receive(MatchError(ContainSubstring("but no nvidia.com/gpu"))))
	g.Expect(api.reads.Load()).To(BeEquivalentTo(2), "once to know, and once before it gives up")
}
