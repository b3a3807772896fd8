package health

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi/nodeapitest"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/test/fakegpu"
	"github.com/clusterpolicy/gpu-operator/test/needs"
)

// The GPUs of the stand-in for NVML.
const (
	gpu0 = "0000:07:00.0"
	gpu1 = "0000:08:00.0"
)

// machine is a node with two GPUs: a stand-in for its driver's library, its sysfs, its kernel log and its API server.
// The program that has the sessions is the real one, and so are the process, the loader and the lock of an open driver.
type machine struct {
	*WithT
	t      *testing.T
	dir    string
	server *nodeapitest.Server
	boot   string
	agent  *Agent
	log    *os.File
	booted time.Time
	lines  int
	stop   func()
	// change and prepare change each agent of the machine, before and after it is made.
	change  func(*Options)
	prepare func(*Agent)
}

// built is what all machines share.
var built = struct {
	sync.Once
	program, library string
	err              error
}{}

// build builds gpu-node-cuda and the stand-in for the library, once.
func build(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("cc"); err != nil {
		needs.Unmet(t, needs.Compiler, err)
	}
	built.Do(func() {
		dir, err := os.MkdirTemp("", "health")
		if err != nil {
			built.err = err
			return
		}
		stack, err := fakegpu.BuildIn(t.Context(), dir)
		if err != nil {
			built.err = err
			return
		}
		built.library, built.program = filepath.Join(stack.Lib, "libnvidia-ml.so.1"), filepath.Join(dir, "gpu-node-cuda")
		command := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", built.program,
			"../../../cmd/gpu-node-cuda")
		command.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := command.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("build: %w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
}

func TestMain(m *testing.M) {
	code := m.Run()
	if built.program != "" {
		_ = os.RemoveAll(filepath.Dir(built.program))
	}
	os.Exit(code)
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	build(t)
	m := &machine{
		WithT: NewWithT(t), t: t, dir: t.TempDir(), server: nodeapitest.Start(t, "node-a"), boot: "boot-1",
		booted: time.Now().Add(-time.Minute),
	}
	m.Expect(os.MkdirAll(m.path("root/lib"), 0o755)).To(Succeed())
	library, err := os.ReadFile(built.library)
	m.Expect(err).NotTo(HaveOccurred())
	m.write("root/lib/libnvidia-ml.so.1", string(library))
	m.write("root/lib/FAKE_GPUS", "gpu gpu")
	m.write("root/lib/"+fakegpu.Handles, "")
	m.nvml("")
	for _, address := range []string{gpu0, gpu1} {
		m.plug(address, "\xde\x10\x00\x23")
	}
	m.driverReady()
	return m
}

func (m *machine) path(name string) string { return filepath.Join(m.dir, name) }

// write replaces a file at once, as a session may read it.
func (m *machine) write(name, content string) {
	m.t.Helper()
	next := m.path(name + ".next")
	m.Expect(os.MkdirAll(filepath.Dir(next), 0o755)).To(Succeed())
	m.Expect(os.WriteFile(next, []byte(content), 0o644)).To(Succeed())
	m.Expect(os.Rename(next, m.path(name))).To(Succeed())
}

// nvml sets the words for the stand-in of the library.
func (m *machine) nvml(words string) { m.t.Helper(); m.write("root/lib/FAKE_NVML", words) }

// plug makes a GPU on the bus that is bound to the driver, with these first bytes of its configuration space.
func (m *machine) plug(address, config string) {
	m.t.Helper()
	device := "sys/bus/pci/devices/" + address
	m.write(device+"/vendor", "0x10de\n")
	m.write(device+"/class", "0x030200\n")
	m.write(device+"/config", config)
	if err := os.Symlink("/sys/bus/pci/drivers/nvidia", m.path(device+"/driver")); !os.IsExist(err) {
		m.Expect(err).NotTo(HaveOccurred())
	}
}

func (m *machine) markers() marker.Dir {
	return marker.Dir{Path: m.path("validations"), BootID: m.boot, StatFile: labels.ProcStat}
}

// driverReady writes the marker of the driver, whose root is that of the stand-in.
func (m *machine) driverReady() {
	m.t.Helper()
	m.Expect(os.MkdirAll(m.path("validations"), 0o755)).To(Succeed())
	m.Expect(m.markers().Write(labels.MarkerDriver, []marker.Assignment{
		{Key: labels.IsHostDriverKey, Value: "true"}, {Key: labels.DriverRootKey, Value: "/"},
		{Key: labels.DriverRootMountKey, Value: m.path("root")},
		{Key: labels.DevRootKey, Value: "/"}, {Key: labels.DevRootMountKey, Value: "/host"},
	}, "")).To(Succeed())
}

// label sets a label of the Node.
func (m *machine) label(key, value string) {
	m.server.Write(func(found, _ map[string]string) { found[key] = value })
}

// run starts the agent.
func (m *machine) run() {
	m.t.Helper()
	for _, variable := range m.server.Env {
		key, value, _ := strings.Cut(variable, "=")
		m.t.Setenv(key, value)
	}
	client, err := nodeapi.InCluster(m.server.ServiceAccountDir)
	m.Expect(err).NotTo(HaveOccurred())
	read, write, err := os.Pipe()
	m.Expect(err).NotTo(HaveOccurred())
	options := Options{
		Node: "node-a", Boot: m.boot, Booted: m.booted, ProcRoot: m.path("proc"), API: client,
		Debounce: time.Millisecond, Interval: 2 * time.Millisecond, Urgent: 2 * time.Millisecond,
		NVML: NVML{
			Every: 20 * time.Millisecond, Limit: time.Minute, Confirm: 10 * time.Millisecond, Window: 300 * time.Millisecond,
			Program: built.program, Markers: m.markers(), SysRoot: m.path("sys"),
		},
		Log: slog.New(slog.DiscardHandler),
	}
	if m.change != nil {
		m.change(&options)
	}
	m.agent, m.log = New(options), write
	if m.prepare != nil {
		m.prepare(m.agent)
	}
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(m.t.Context())
	go func() { done <- m.agent.Run(ctx, read) }()
	m.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			m.t.Error(err)
		}
		_ = write.Close()
	})
	m.t.Cleanup(m.stop)
}

// reboot ends the agent and starts the next one in another boot, with an empty kernel log.
func (m *machine) reboot() {
	m.t.Helper()
	m.stop()
	m.boot, m.lines = m.boot+"1", 0
	m.driverReady()
	m.run()
}

// kernel writes lines into the kernel log, as long after the boot as they are.
func (m *machine) kernel(lines ...line) {
	m.t.Helper()
	for _, l := range lines {
		m.lines++
		_, err := m.log.WriteString(recordOf(m.lines, l))
		m.Expect(err).NotTo(HaveOccurred())
	}
}

func xidOf(pci string, number int) line { return line{text: of(pci, number, "pid=1, name=x, text")} }

func hasBeenReset(pci string) line {
	return line{text: "gpu-operator: GPU " + pci + " has been reset", program: true}
}

// shown is what users see of a node.
type shown struct {
	condition string
	events    []string
	metrics   []string
}

// shows returns what the operator makes of the annotation, and the metrics.
func (m *machine) shows() shown {
	m.t.Helper()
	node := &corev1.Node{}
	node.Name, node.Annotations = "node-a", m.server.Annotations()
	node.Status.NodeInfo.BootID = m.boot
	found := assess.Node(assess.Input{
		NodePlan: plan.NodePlan{Spec: effective.Of(v1.ClusterPolicySpec{}), HealthReporter: "health-agent"},
		Node:     node, Now: time.Now(),
	})
	var s shown
	condition := found.HealthCondition("node-a")
	s.condition = fmt.Sprintf("%s %s", condition.Status, condition.Reason)
	if condition.Status == corev1.ConditionFalse {
		s.events = append(s.events, condition.Reason)
		s.condition += condition.Message[strings.Index(condition.Message, ":"):]
	}
	if notes := found.NewHealthNotes(nil, "node-a", time.Now()); notes != nil {
		s.events = append(s.events, notes.Reason+strings.TrimPrefix(notes.Message, "node-a"))
	}
	s.metrics = m.metrics()
	return s
}

// metrics returns the samples without the label of the node, such as gpu_watched{pci=..., reason=...} 1.
func (m *machine) metrics() []string {
	m.t.Helper()
	registry := prometheus.NewPedanticRegistry()
	m.Expect(registry.Register(m.agent)).To(Succeed())
	families, err := registry.Gather()
	m.Expect(err).NotTo(HaveOccurred())
	var samples []string
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			var pairs []string
			for _, label := range metric.GetLabel() {
				if label.GetName() != "node" {
					pairs = append(pairs, label.GetName()+"="+label.GetValue())
				}
			}
			samples = append(samples, fmt.Sprintf("%s{%s} %v", strings.TrimPrefix(family.GetName(), "gpu_operator_node_"),
				strings.Join(pairs, ","), metric.GetGauge().GetValue()+metric.GetCounter().GetValue()))
		}
	}
	return samples
}

// sessions returns how many sessions there were with this outcome.
func (m *machine) sessions(outcome string) int {
	m.agent.mu.Lock()
	defer m.agent.mu.Unlock()
	return m.agent.counted[outcome]
}

// ended returns how many sessions have ended, whatever their outcome.
func (m *machine) ended() int {
	m.agent.mu.Lock()
	defer m.agent.mu.Unlock()
	all := 0
	for _, count := range m.agent.counted {
		all += count
	}
	return all
}

// awaitSessions waits for as many more sessions with this outcome.
func (m *machine) awaitSessions(outcome string, more int) {
	m.t.Helper()
	from := m.sessions(outcome)
	m.Eventually(func() int { return m.sessions(outcome) }, patience, "2ms").Should(BeNumerically(">=", from+more))
}

// unload does what a program that unloads the driver has to: it fails while any process has it open.
func (m *machine) unload() error {
	file, err := os.Open(m.path("root/lib/" + fakegpu.Handles))
	if err != nil {
		return err
	}
	defer file.Close()
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}
