package health

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/clusterpolicy/gpu-operator/internal/health/gpuhealth"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi/nodeapitest"
)

// fixture is an agent that reads a stand-in for the kernel log, a pipe.
type fixture struct {
	t        *testing.T
	server   *nodeapitest.Server
	agent    *Agent
	log      *os.File
	sequence int
	output   *buffer
	proc     string
	done     chan error
}

// buffer may be read while it is written.
type buffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *buffer) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.String()
}

func start(t *testing.T, boot string, interval time.Duration, server *nodeapitest.Server) *fixture {
	t.Helper()
	g := NewWithT(t)
	for _, variable := range server.Env {
		key, value, _ := strings.Cut(variable, "=")
		t.Setenv(key, value)
	}
	client, err := nodeapi.InCluster(server.ServiceAccountDir)
	g.Expect(err).NotTo(HaveOccurred())
	read, write, err := os.Pipe()
	g.Expect(err).NotTo(HaveOccurred())
	f := &fixture{t: t, server: server, log: write, output: &buffer{}, proc: t.TempDir(), done: make(chan error, 1)}
	f.agent = New(Options{
		Node: "node-a", Boot: boot, Booted: noon, ProcRoot: f.proc, API: client,
		Debounce: time.Millisecond, Interval: interval, Urgent: interval, Log: slog.New(slog.NewTextHandler(f.output, nil)),
	})
	t.Cleanup(func() { _ = write.Close() })
	go func() { f.done <- f.agent.Run(t.Context(), read) }()
	return f
}

func (f *fixture) write(lines ...line) {
	f.t.Helper()
	for _, l := range lines {
		f.sequence++
		if _, err := f.log.WriteString(recordOf(f.sequence, l)); err != nil {
			f.t.Fatal(err)
		}
	}
}

// reported returns the faults in the annotation; nil if there is none.
func (f *fixture) reported() []string {
	value, there := f.server.Annotations()[labels.GPUHealth]
	if !there {
		return nil
	}
	report, err := gpuhealth.Decode(value)
	if err != nil {
		return []string{err.Error()}
	}
	found := []string{"boot " + report.Boot}
	for _, fault := range report.Faults {
		found = append(found, want(fault.PCI, fault.Class, fault.Reason, fault.Xid+fault.SXid))
	}
	return found
}

const patience = time.Minute

func TestTheAgentReportsFaultsAndTheirEnd(t *testing.T) {
	g := NewWithT(t)
	f := start(t, "boot-1", 2*time.Millisecond, nodeapitest.Start(t, "node-a"))
	g.Eventually(f.reported, patience).Should(Equal([]string{"boot boot-1"}), "it runs, and there is no fault")

	f.write(a(0, 13), a(0, 79))
	g.Eventually(f.reported, patience).Should(Equal([]string{"boot boot-1", want(gpuA, "Reboot", "GPULost", 79)}))
	f.write(b(0, 48))
	g.Eventually(f.reported, patience).Should(HaveLen(3))
	f.write(reset(0))
	g.Eventually(f.reported, patience).Should(
		Equal([]string{"boot boot-1", want(gpuB, "Reset", "GPUUncorrectableECC", 48)}))
}

// An agent at rest writes nothing, nor does one that finds what it has reported before.
func TestOnlyChangesAreWritten(t *testing.T) {
	g := NewWithT(t)
	server := nodeapitest.Start(t, "node-a")
	f := start(t, "boot-1", 2*time.Millisecond, server)
	f.write(a(0, 13), a(0, 79))
	g.Eventually(f.reported, patience).Should(HaveLen(2))
	patches := server.Patches()
	f.write(a(time.Minute, 79), a(time.Minute, 13), a(time.Hour, 119))
	g.Eventually(f.counts(gpuA, "119"), patience).Should(Equal(1))

	again := start(t, "boot-1", 2*time.Millisecond, server)
	again.write(a(0, 13), a(0, 79), a(time.Hour, 79))
	g.Eventually(again.counts(gpuA, "79"), patience).Should(Equal(2))
	again.write(b(time.Hour, 48))
	g.Eventually(again.reported, patience).Should(HaveLen(3))
	g.Expect(server.Patches()).To(Equal(patches + 1))
}

// counts returns a function that returns the lines which the agent has counted.
func (f *fixture) counts(pci, number string) func() int {
	return func() int {
		f.agent.mu.Lock()
		defer f.agent.mu.Unlock()
		if f.agent.state == nil || f.agent.state.devices[pci] == nil {
			return 0
		}
		return f.agent.state.devices[pci].counts[number]
	}
}

// However many errors there are, a node has few writes: the first report, and then one in each interval at most.
func TestAStormHasFewWrites(t *testing.T) {
	g := NewWithT(t)
	server := nodeapitest.Start(t, "node-a")
	const interval = time.Hour
	f := start(t, "boot-1", interval, server)
	g.Eventually(f.reported, patience).ShouldNot(BeEmpty())
	for i := range 10_000 {
		pci := []string{gpuA, gpuB}[i%2]
		f.write(line{text: of(pci, []int{13, 48, 79, 154, 94}[i%5], fmt.Sprintf("pid=%d, x (None)", i))})
	}
	g.Eventually(func() int { return f.counts(gpuA, "79")() + f.counts(gpuB, "79")() }, patience).Should(Equal(2000))
	g.Expect(server.Patches()).To(Equal(1), "the first report, less than an interval ago")
	g.Expect(time.Minute / DefaultInterval).To(BeNumerically("<", 5))
}

func TestABootEndsTheFaults(t *testing.T) {
	g := NewWithT(t)
	server := nodeapitest.Start(t, "node-a")
	before := start(t, "boot-1", 2*time.Millisecond, server)
	before.write(a(0, 79))
	g.Eventually(before.reported, patience).Should(HaveLen(2))
	after := start(t, "boot-2", 2*time.Millisecond, server)
	g.Eventually(after.reported, patience).Should(Equal([]string{"boot boot-2"}))
}

// Someone else may have written the annotation.
func TestAMalformedReportIsReplaced(t *testing.T) {
	g := NewWithT(t)
	server := nodeapitest.Start(t, "node-a")
	server.Write(func(_, annotations map[string]string) { annotations[labels.GPUHealth] = "x" })
	f := start(t, "boot-1", 2*time.Millisecond, server)
	g.Eventually(f.reported, patience).Should(Equal([]string{"boot boot-1"}))
}

// Someone may remove the annotation, too. It is written again as often as that happens, and no other write follows.
func TestARemovedReportIsWrittenAgain(t *testing.T) {
	g := NewWithT(t)
	server := nodeapitest.Start(t, "node-a")
	f := start(t, "boot-1", 2*time.Millisecond, server)
	f.write(a(0, 79))
	g.Eventually(f.reported, patience).Should(HaveLen(2))
	patches := server.Patches()
	for range 3 {
		g.Eventually(f.seen, patience).Should(BeTrue())
		server.Write(func(_, annotations map[string]string) { delete(annotations, labels.GPUHealth) })
		g.Eventually(f.reported, patience).Should(Equal([]string{"boot boot-1", want(gpuA, "Reboot", "GPULost", 79)}))
	}
	g.Eventually(f.seen, patience).Should(BeTrue())
	g.Expect(server.Patches()).To(Equal(patches + 3))
}

// seen reports whether the agent has seen its annotation in the watch of the Node.
func (f *fixture) seen() bool {
	f.agent.mu.Lock()
	defer f.agent.mu.Unlock()
	return f.agent.seen
}

func TestTheAgentWaitsForTheAPIServer(t *testing.T) {
	g := NewWithT(t)
	server := nodeapitest.Start(t, "node-a")
	server.Refuse(http.StatusForbidden, "no role")
	f := start(t, "boot-1", 2*time.Millisecond, server)
	f.write(a(0, 79))
	g.Eventually(f.output.text, patience).Should(ContainSubstring("the Node cannot be read"))
	server.Refuse(0, "")
	g.Eventually(f.reported, patience).Should(HaveLen(2))
	server.Refuse(http.StatusForbidden, "admission policy")
	f.write(b(0, 48))
	g.Eventually(f.output.text, patience).Should(ContainSubstring("cannot be reported"))
	server.Refuse(0, "")
	g.Eventually(f.reported, patience).Should(HaveLen(3))
}

func TestTheAgentFailsWithoutTheKernelLog(t *testing.T) {
	g := NewWithT(t)
	f := start(t, "boot-1", 2*time.Millisecond, nodeapitest.Start(t, "node-a"))
	g.Expect(f.log.Close()).To(Succeed())
	g.Eventually(f.done, patience).Should(Receive(MatchError(ContainSubstring("the kernel log cannot be read"))))
}

func TestTheUUIDIsReported(t *testing.T) {
	g := NewWithT(t)
	f := start(t, "boot-1", 2*time.Millisecond, nodeapitest.Start(t, "node-a"))
	for pci, uuid := range map[string]string{gpuA: "GPU-0b2a-11", gpuB: "GPU-????????-????"} {
		dir := filepath.Join(f.proc, "driver/nvidia/gpus", pci)
		g.Expect(os.MkdirAll(dir, 0o700)).To(Succeed())
		g.Expect(os.WriteFile(filepath.Join(dir, "information"),
			[]byte("Model: \t\t NVIDIA H100\nIRQ:   \t\t 42\nGPU UUID: \t "+uuid+"\n"), 0o600)).To(Succeed())
	}
	f.write(a(0, 79), b(0, 79))
	g.Eventually(func() string { return f.server.Annotations()[labels.GPUHealth] }, patience).Should(And(
		ContainSubstring(`{"pci":"0000:1b:00.0","uuid":"GPU-0b2a-11",`), ContainSubstring(`{"pci":"0000:3b:00.0","class"`)))
}

func TestMetrics(t *testing.T) {
	g := NewWithT(t)
	f := start(t, "boot-1", 2*time.Millisecond, nodeapitest.Start(t, "node-a"))
	f.write(a(0, 79), a(0, 79), a(0, 63), action(0, "GPU Reset Required"), sxid("Fatal"))
	g.Eventually(f.reported, patience).Should(HaveLen(3))
	registry := prometheus.NewPedanticRegistry()
	g.Expect(registry.Register(f.agent)).To(Succeed())
	families, err := registry.Gather()
	g.Expect(err).NotTo(HaveOccurred())
	samples := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			name := strings.TrimPrefix(family.GetName(), "gpu_operator_node_")
			for _, label := range metric.GetLabel() {
				name += " " + label.GetName() + "=" + label.GetValue()
			}
			samples[name] = metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
		}
	}
	delete(samples, "gpu_health_writes_total node=node-a")
	delete(samples, "nvml_session_seconds node=node-a")
	g.Expect(samples).To(Equal(map[string]float64{
		"gpu_unhealthy class=Reboot node=node-a pci=0000:1b:00.0 reason=GPULost":           1,
		"gpu_unhealthy class=Reset node=node-a pci=0000:c1:00.0 reason=NVSwitchFatalError": 1,
		"gpu_watched node=node-a pci=0000:1b:00.0 reason=GPUMemoryRemapPending":            1,
		"gpu_xid_total class= node=node-a pci=0000:1b:00.0 xid=154":                        1,
		"gpu_xid_total class=Reboot node=node-a pci=0000:1b:00.0 xid=79":                   2,
		"gpu_xid_total class=Watch node=node-a pci=0000:1b:00.0 xid=63":                    1,
		"nvml_gpus node=node-a":                                       0,
		"kernel_log_gaps_total node=node-a":                           0,
		"nvswitch_sxid_total node=node-a pci=0000:c1:00.0 sxid=12028": 1,
	}))
}
