package export

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi"
)

// node returns options for a node on which nothing is validated yet, with two GPUs and an NVSwitch on its buses and
// eight devices in its capacity.
func node(t *testing.T) Options {
	t.Helper()
	sys := t.TempDir()
	for address, class := range map[string]string{
		"0000:3b:00.0": "0x030200", "0000:5e:00.0": "0x030000", "0000:c1:00.0": "0x068000",
	} {
		put(t, filepath.Join(sys, "bus/pci/devices", address, "vendor"), "0x10de\n")
		put(t, filepath.Join(sys, "bus/pci/devices", address, "class"), class+"\n")
	}
	return Options{
		Node: "node-a", Markers: marker.Dir{Path: t.TempDir(), BootID: "now"}, Validated: DefaultMarkers, SysRoot: sys,
		CheckDriver:    func(context.Context) ([]marker.Assignment, error) { return nil, nil },
		DriverInterval: time.Millisecond, DriverTimeout: time.Minute,
		Resources: func(context.Context) (nodeapi.Resources, error) {
			return nodeapi.Resources{Capacity: map[string]resource.Quantity{
				"cpu": resource.MustParse("8"), "nvidia.com/gpu": resource.MustParse("1"),
				"nvidia.com/mig-1g.5gb": resource.MustParse("7"),
			}}, nil
		},
		Log: slog.New(slog.DiscardHandler),
	}
}

func put(t *testing.T, path, content string) {
	t.Helper()
	NewWithT(t).Expect(os.MkdirAll(filepath.Dir(path), 0o700)).To(Succeed())
	NewWithT(t).Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
}

var sample = regexp.MustCompile(`(?m)^([a-z_]+)\{([^}]*)\} (\S+)$`)

// scrape returns the samples: the name without its common prefix, and the stage, to the value.
func scrape(t *testing.T, e *Exporter) map[string]string {
	t.Helper()
	g := NewWithT(t)
	answer := httptest.NewRecorder()
	handler(e).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	g.Expect(answer.Code).To(Equal(http.StatusOK), answer.Body.String())
	samples := map[string]string{}
	for _, found := range sample.FindAllStringSubmatch(answer.Body.String(), -1) {
		stage, named := strings.CutPrefix(found[2], `node="node-a"`)
		g.Expect(named).To(BeTrue(), found[0])
		samples[strings.TrimPrefix(found[1], "gpu_operator_")+stage] = found[3]
	}
	return samples
}

// The names are a contract: dashboards and alerts use them.
func TestNamesAreThoseOfNVIDIAsExporter(t *testing.T) {
	g := NewWithT(t)
	e := New(node(t))
	e.driver.attempt(t.Context())
	answer := httptest.NewRecorder()
	handler(e).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	var types []string
	explained := 0
	for line := range strings.Lines(answer.Body.String()) {
		if regexp.MustCompile(`^# HELP \S+ \S.*\.$`).MatchString(strings.TrimSpace(line)) {
			explained++
		}
		if kind, ok := strings.CutPrefix(line, "# TYPE "); ok {
			types = append(types, strings.TrimSpace(kind))
		}
	}
	g.Expect(types).To(ConsistOf(
		"gpu_operator_node_metrics_ready_ts_seconds gauge",
		"gpu_operator_node_driver_ready gauge",
		"gpu_operator_node_toolkit_ready gauge",
		"gpu_operator_node_plugin_ready gauge",
		"gpu_operator_node_cuda_ready gauge",
		"gpu_operator_node_driver_validation gauge",
		"gpu_operator_node_driver_validation_last_success_ts_seconds gauge",
		"gpu_operator_node_device_plugin_devices_total gauge",
		"gpu_operator_node_device_plugin_validation_last_success_ts_seconds gauge",
		"gpu_operator_nvidia_pci_devices_total gauge",
		"gpu_operator_node_stage_seconds gauge",
	))
	g.Expect(explained).To(Equal(len(types)), answer.Body.String())
}

func TestMarkersAreReadAtTheScrape(t *testing.T) {
	g := NewWithT(t)
	options := node(t)
	e := New(options)
	g.Expect(scrape(t, e)).To(And(
		HaveKeyWithValue("node_driver_ready", "0"), HaveKeyWithValue("node_toolkit_ready", "0"),
		HaveKeyWithValue("node_cuda_ready", "0"), HaveKeyWithValue("node_plugin_ready", "0"),
		HaveKey(`node_stage_seconds,stage="driver"`), Not(HaveKey(`node_stage_seconds,stage="toolkit"`))))

	g.Expect(options.Markers.Write(labels.MarkerDriver, nil, "")).To(Succeed())
	g.Expect(scrape(t, e)).To(And(HaveKeyWithValue("node_driver_ready", "1"), HaveKeyWithValue("node_toolkit_ready", "0"),
		HaveKey(`node_stage_seconds,stage="toolkit"`)))

	// The driver container is replaced: its validation no longer counts.
	put(t, filepath.Join(options.Markers.Path, ".driver-ctr-ready"), "DRIVER_INSTANCE: pod-2\n")
	g.Expect(scrape(t, e)).To(HaveKeyWithValue("node_driver_ready", "0"))
}

func TestCounts(t *testing.T) {
	g := NewWithT(t)
	e := New(node(t))
	g.Expect(scrape(t, e)).To(And(
		HaveKeyWithValue("node_device_plugin_devices_total", "8"),
		HaveKeyWithValue("node_device_plugin_validation_last_success_ts_seconds", Not(Equal("0"))),
		HaveKeyWithValue("nvidia_pci_devices_total", "2")))
}

func TestFailedCountsAreMinusOneAndLoggedOnce(t *testing.T) {
	g := NewWithT(t)
	var log bytes.Buffer
	options := node(t)
	options.Log = slog.New(slog.NewTextHandler(&log, nil))
	options.SysRoot = filepath.Join(t.TempDir(), "none")
	options.Resources = func(context.Context) (nodeapi.Resources, error) {
		return nodeapi.Resources{}, errors.New("check the roles")
	}
	e := New(options)
	for range 3 {
		g.Expect(scrape(t, e)).To(And(
			HaveKeyWithValue("node_device_plugin_devices_total", "-1"),
			HaveKeyWithValue("node_device_plugin_validation_last_success_ts_seconds", "0"),
			HaveKeyWithValue("nvidia_pci_devices_total", "-1")))
		e.devices.readAt = time.Time{}
	}
	g.Expect(strings.Count(log.String(), "check the roles")).To(Equal(1))
	g.Expect(strings.Count(log.String(), "is sysfs mounted")).To(Equal(1))
}

func TestTheNodeIsReadOnceInHalfAMinute(t *testing.T) {
	g := NewWithT(t)
	reads := 0
	gpus := resource.MustParse("8")
	counter := &devices{log: &reasons{log: slog.New(slog.DiscardHandler), last: map[string]string{}},
		resources: func(context.Context) (nodeapi.Resources, error) {
			if reads++; reads == 2 {
				return nodeapi.Resources{}, errors.New("no answer")
			}
			return nodeapi.Resources{Capacity: map[string]resource.Quantity{"nvidia.com/gpu": gpus}}, nil
		}}
	for _, look := range []struct {
		now  float64
		want int64
		last float64
	}{
		{now: 0, want: 8, last: 0},
		{now: 29, want: 8, last: 0},
		{now: 30, want: -1, last: 0},
		{now: 59, want: -1, last: 0},
		{now: 60, want: 8, last: 60},
	} {
		count, last := counter.count(at(look.now))
		g.Expect(count).To(Equal(look.want), "%v", look)
		g.Expect(last).To(BeTemporally("==", at(look.last)), "%v", look)
	}
	g.Expect(reads).To(Equal(3))
}

func TestTheDriverIsCheckedPeriodically(t *testing.T) {
	g := NewWithT(t)
	var broken atomic.Bool
	options := node(t)
	options.CheckDriver = func(context.Context) ([]marker.Assignment, error) {
		if broken.Load() {
			return nil, errors.New("a GPU has fallen off the bus")
		}
		return nil, nil
	}
	e := New(options)
	g.Expect(scrape(t, e)).To(And(Not(HaveKey("node_driver_validation")),
		HaveKeyWithValue("node_driver_validation_last_success_ts_seconds", "0")), "before the first check")

	ended := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { e.Run(ctx); close(ended) }()
	g.Eventually(func() map[string]string { return scrape(t, e) }, "1m").
		Should(HaveKeyWithValue("node_driver_validation", "1"))
	broken.Store(true)
	g.Eventually(func() map[string]string { return scrape(t, e) }, "1m").
		Should(HaveKeyWithValue("node_driver_validation", "0"))
	const last = "node_driver_validation_last_success_ts_seconds"
	kept := scrape(t, e)[last]
	g.Expect(kept).NotTo(Equal("0"))
	g.Expect(scrape(t, e)).To(HaveKeyWithValue(last, kept), "a failure does not change it")
	broken.Store(false)
	g.Eventually(func() map[string]string { return scrape(t, e) }, "1m").
		Should(HaveKeyWithValue("node_driver_validation", "1"))
	cancel()
	g.Eventually(ended, "1m").Should(BeClosed())
}

func TestNoSecondCheckIsStartedWhileOneHangs(t *testing.T) {
	g := NewWithT(t)
	var log bytes.Buffer
	started, release := make(chan struct{}, 10), make(chan struct{})
	d := &driver{
		check: func(context.Context) ([]marker.Assignment, error) {
			started <- struct{}{}
			<-release // Like a process in an uninterruptible sleep.
			return nil, nil
		},
		every: time.Millisecond, timeout: time.Millisecond,
		log: &reasons{log: slog.New(slog.NewTextHandler(&log, nil)), last: map[string]string{}},
	}
	ended := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { d.run(ctx); close(ended) }()
	g.Eventually(func() bool { works, known, _ := d.result(); return known && !works }, "1m").Should(BeTrue())
	g.Expect(started).To(HaveLen(1))

	release <- struct{}{}
	g.Eventually(started, "1m").Should(HaveLen(2), "the next one starts once it has ended")
	cancel()
	g.Eventually(ended, "1m").Should(BeClosed())
	close(release)
	g.Expect(log.String()).To(ContainSubstring("the check hangs and cannot be killed"))
}

// Clients that leave their requests unfinished neither keep a collector waiting nor stay open.
func TestServeLimitsConnections(t *testing.T) {
	g := NewWithT(t)
	options, addresses, done := node(t), make(chan string, 1), make(chan error, 1)
	options.Log = slog.New(slog.NewTextHandler(address(addresses), nil))
	ctx, cancel := context.WithCancel(t.Context())
	go func() { done <- Serve(ctx, 0, New(options), options.Log) }()
	at := <-addresses
	var oldest net.Conn
	for range 150 {
		conn, err := net.Dial("tcp", at)
		g.Expect(err).NotTo(HaveOccurred())
		t.Cleanup(func() { _ = conn.Close() })
		oldest = cmp.Or(oldest, conn)
	}
	answer, err := http.Get("http://" + at + "/metrics")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(answer.Body.Close()).To(Succeed())
	g.Expect(answer.Close).To(BeFalse(), "a collector keeps its connection")
	// It was closed before the answer, which is earlier than a header may take.
	g.Expect(oldest.SetReadDeadline(time.Now().Add(3 * time.Second))).To(Succeed())
	_, err = oldest.Read(make([]byte, 1))
	g.Expect(err).To(Or(MatchError(io.EOF), MatchError(ContainSubstring("reset by peer"))), "it is closed")
	cancel()
	g.Eventually(done, "1m").Should(Receive(BeNil()))
}

func TestServeEndsImmediatelyThoughAScrapeHangs(t *testing.T) {
	g := NewWithT(t)
	options := node(t)
	addresses := make(chan string, 1)
	options.Log = slog.New(slog.NewTextHandler(address(addresses), nil))
	scraped, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	options.Resources = func(context.Context) (nodeapi.Resources, error) {
		close(scraped)
		<-release
		return nodeapi.Resources{}, nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, 0, New(options), options.Log) }()
	base := "http://" + <-addresses

	answer, err := http.Get(base + "/healthz")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(io.ReadAll(answer.Body)).To(BeEquivalentTo("ok\n"))
	g.Expect(answer.Body.Close()).To(Succeed())

	go func() {
		if answer, err := http.Get(base + "/metrics"); err == nil {
			_ = answer.Body.Close()
		}
	}()
	g.Eventually(scraped, "1m").Should(BeClosed())
	cancel()
	g.Eventually(done, "1m").Should(Receive(BeNil()))
}

// address receives the address from the log line that has it.
type address chan string

var addressField = regexp.MustCompile(`address=\S*:(\d+)`)

func (a address) Write(line []byte) (int, error) {
	if found := addressField.FindSubmatch(line); found != nil {
		a <- net.JoinHostPort("127.0.0.1", string(found[1]))
	}
	return len(line), nil
}

func TestServeReportsThatItsPortIsInUse(t *testing.T) {
	g := NewWithT(t)
	taken, err := net.Listen("tcp", ":0")
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = taken.Close() }()
	tcp, ok := taken.Addr().(*net.TCPAddr)
	g.Expect(ok).To(BeTrue())
	g.Expect(Serve(t.Context(), tcp.Port, New(node(t)), slog.New(slog.DiscardHandler))).To(MatchError(And(
		HavePrefix("the metrics cannot be served on port "), ContainSubstring("set a free one by --port or METRICS_PORT"),
		ContainSubstring("address already in use"))))
}
