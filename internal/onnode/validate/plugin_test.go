package validate

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi/nodeapitest"
)

func TestPlugin(t *testing.T) {
	tests := map[string]struct {
		status  string
		err     string
		pending bool
	}{
		"succeeds with a GPU":           {status: `{"allocatable":{"nvidia.com/gpu":"1"}}`},
		"succeeds with a shared GPU":    {status: `{"allocatable":{"nvidia.com/gpu.shared":"10"}}`},
		"succeeds with a MIG device":    {status: `{"allocatable":{"nvidia.com/gpu":"0","nvidia.com/mig-1g.5gb":"7"}}`},
		"succeeds with a thousand GPUs": {status: `{"allocatable":{"nvidia.com/gpu":"1k"}}`},
		"fails if all GPUs are unhealthy": {
			status:  `{"capacity":{"cpu":"8","nvidia.com/gpu":"8"},"allocatable":{"cpu":"8","nvidia.com/gpu":"0"}}`,
			err:     "node node-a has nvidia.com/gpu=8, but none can be allocated; see the log of the device plugin",
			pending: true},
		"fails if no plugin has registered": {
			status: `{"capacity":{"cpu":"8"},"allocatable":{"cpu":"8"}}`, err: "node node-a advertises no GPU", pending: true},
		"does not count devices of other vendors": {
			status: `{"allocatable":{"amd.com/gpu":"8","nvidia.com/hostdev":"2"}}`, err: "advertises no GPU", pending: true},
		"fails if the node cannot be read": {
			status: `[]`, err: "the resources of node node-a cannot be read"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := Plugin{Node: "node-a", Client: client(t, `{"status":`+tc.status+`}`)}.Check(t.Context())
			if tc.err == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(ContainSubstring(tc.err)))
			g.Expect(isPending(err)).To(Equal(tc.pending))
		})
	}
}

func TestPluginCountsTheResourcesOfTheMIGStrategy(t *testing.T) {
	const whole = `{"allocatable":{"nvidia.com/gpu":"7"}}`
	const mig = `{"allocatable":{"nvidia.com/gpu":"0","nvidia.com/mig-1g.5gb":"7"}}`
	const leftOver = "node node-a advertises nvidia.com/mig-1g.5gb=7, but with the MIG strategy "
	tests := map[string]struct {
		strategy MIGStrategy
		status   string
		err      string
	}{
		"single counts whole GPUs":         {strategy: MIGSingle, status: whole},
		"single counts no MIG devices":     {strategy: MIGSingle, status: mig, err: leftOver + "single its GPUs must be"},
		"none counts whole GPUs":           {strategy: MIGNone, status: whole},
		"none counts no MIG devices":       {strategy: MIGNone, status: mig, err: leftOver + "none its GPUs must be"},
		"mixed counts MIG devices":         {strategy: MIGMixed, status: mig},
		"mixed counts GPUs without MIG":    {strategy: MIGMixed, status: whole},
		"an unknown one counts everything": {strategy: "", status: mig},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := Plugin{
				Node:     "node-a",
				Strategy: tc.strategy,
				Client:   client(t, `{"status":`+tc.status+`}`),
			}.Check(t.Context())
			if tc.err == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(ContainSubstring(tc.err)))
			g.Expect(isPending(err)).To(BeFalse(), "waiting does not help")
		})
	}
}

func TestMIGStrategyNamed(t *testing.T) {
	g := NewWithT(t)
	g.Expect(MIGStrategyNamed("mixed")).To(Equal(MIGMixed))
	_, err := MIGStrategyNamed("Mixed")
	g.Expect(err).To(MatchError(`unknown MIG strategy "Mixed"; use none, single or mixed`))
}

func TestPluginPrefersMIGDevicesForItsWorkload(t *testing.T) {
	g := NewWithT(t)
	const status = `{"status":{"allocatable":{"nvidia.com/gpu":"2","nvidia.com/mig-3g.20gb":"1",` +
		`"nvidia.com/mig-1g.5gb":"7","nvidia.com/mig-2g.10gb":"0"}}}`
	requested := ""
	broken := errors.New("GPU 0 gives wrong numbers")
	_, err := Plugin{Node: "node-a", Client: client(t, status), TestPod: func(_ context.Context, resource string) error {
		requested = resource
		return broken
	}}.Check(t.Context())
	g.Expect(requested).To(Equal("nvidia.com/mig-1g.5gb"))
	g.Expect(err).To(MatchError(broken))
}

// The watch starts from the version that was read, so that no change is missed between the two.
func TestPluginIsWokenByTheKubeletsReport(t *testing.T) {
	g := NewWithT(t)
	var reported atomic.Bool
	watching, report := make(chan struct{}), make(chan struct{})
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		gpus := "0"
		if r.URL.Query().Get("watch") == "true" && r.URL.Query().Get("resourceVersion") == "7" {
			_ = http.NewResponseController(w).Flush()
			close(watching)
			<-report
			_, _ = w.Write([]byte(`{"type":"MODIFIED","object":{"status":{"allocatable":{"nvidia.com/gpu":"8"}}}}`))
			return
		}
		if reported.Load() {
			gpus = "8"
		}
		_, _ = w.Write(
			[]byte(`{"metadata":{"resourceVersion":"7"},"status":{"allocatable":{"nvidia.com/gpu":"` + gpus + `"}}}`))
	})
	run, log := newRun(t, Plugin{Node: "node-a", Client: clientOf(t, api)}.Check)
	run.Interval, run.MaxInterval = time.Hour, time.Hour
	done := make(chan error, 1)
	go func() { done <- run.Validate(t.Context()) }()
	g.Eventually(watching, "1m").Should(BeClosed())
	at := time.Now()
	reported.Store(true)
	close(report)
	g.Eventually(done, "1m").Should(Receive(BeNil()))
	t.Logf("from the report to the marker: %s", time.Since(at))
	g.Expect(strings.Count(log.String(), "advertises no GPU")).To(Equal(1))
}

// If the role does not allow a watch, the Node is read again after the usual pauses.
func TestPluginPollsIfItMayNotWatch(t *testing.T) {
	g := NewWithT(t)
	var reads atomic.Int32
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Query().Get("watch") == "true":
			w.WriteHeader(http.StatusForbidden)
		case reads.Add(1) < 4:
			_, _ = w.Write([]byte(`{}`))
		default:
			_, _ = w.Write([]byte(`{"status":{"allocatable":{"nvidia.com/gpu":"8"}}}`))
		}
	})
	run, _ := newRun(t, Plugin{Node: "node-a", Client: clientOf(t, api)}.Check)
	g.Expect(run.Validate(t.Context())).To(Succeed())
	g.Expect(reads.Load()).To(BeEquivalentTo(4))
}

// client returns a client of an API server whose only answer is node.
func client(t *testing.T, node string) *nodeapi.Client {
	t.Helper()
	return clientOf(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(node)) }))
}

// clientOf returns a client of this API server.
func clientOf(t *testing.T, api http.Handler) *nodeapi.Client {
	t.Helper()
	dir, env := nodeapitest.Serve(t, api)
	for _, variable := range env {
		key, value, _ := strings.Cut(variable, "=")
		t.Setenv(key, value)
	}
	made, err := nodeapi.InCluster(dir)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return made
}
