package validate

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// silent is an API server whose Node has this status, and whose watches end without an event when end is closed. It
// counts requests.
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

// A thousand nodes may wait at the same time, so a watch must cost nothing while nothing changes.
func TestPluginWatchesUntilTheServerEndsIt(t *testing.T) {
	g := NewWithT(t)
	api := &silent{status: `{}`, end: make(chan struct{})}
	run, _ := newRun(t, Plugin{Node: "node-a", Client: clientOf(t, api)}.Check)
	run.FailAfter = time.Millisecond // It does not count: the device plugin is pending.
	done := make(chan error, 1)
	go func() { done <- run.Validate(t.Context()) }()
	g.Eventually(api.watches.Load, "1m").Should(BeEquivalentTo(1))
	g.Consistently(api.reads.Load, 250*run.MaxInterval).Should(BeEquivalentTo(1))
	g.Expect(api.watches.Load()).To(BeEquivalentTo(1))

	close(api.end)
	g.Eventually(done, "1m").Should(Receive(BeNil()), "it reads again")
	g.Expect(api.reads.Load()).To(BeEquivalentTo(2))
}

// A Node that advertises the wrong resources is a failure, which is reported though the Node does not change.
func TestPluginFailsThoughTheNodeDoesNotChange(t *testing.T) {
	g := NewWithT(t)
	api := &silent{status: `{"allocatable":{"nvidia.com/mig-1g.5gb":"7"}}`, end: make(chan struct{})}
	run, _ := newRun(t, Plugin{Node: "node-a", Strategy: MIGSingle, Client: clientOf(t, api)}.Check)
	run.FailAfter = time.Second // The first read must be within it, also on a busy machine.
	done := make(chan error, 1)
	go func() { done <- run.Validate(t.Context()) }()
	g.Eventually(done, "1m").Should(Receive(MatchError(ContainSubstring("its GPUs must be nvidia.com/gpu"))))
	g.Expect(api.reads.Load()).To(BeEquivalentTo(2), "once at first, and once before it fails")
}
