package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi/nodeapitest"
	"github.com/clusterpolicy/gpu-operator/test/fakegpu"
)

// maxHealthCPU, in percent of a core, is what the health agent and its sessions with NVML may use at rest.
const maxHealthCPU = 0.3

// nvmlNode is a node with eight GPUs whose driver is a stand-in, and the flags of health for it.
func nvmlNode(t *testing.T) (stack fakegpu.Stack, flags []string) {
	t.Helper()
	g := NewWithT(t)
	pod, program, dir := newPod(t), cudaProgram(t), t.TempDir()
	stack = fakegpu.Build(t)
	// Without a C library of its own, as the driver of some distributions.
	root := filepath.Dir(stack.Lib)
	pod.put(t, "driver-ready", "IS_HOST_DRIVER=true\nNVIDIA_DRIVER_ROOT=/\nDRIVER_ROOT_CTR_PATH="+root+
		"\nNVIDIA_DEV_ROOT=/\nDEV_ROOT_CTR_PATH=/host\n")
	g.Expect(os.WriteFile(filepath.Join(stack.Lib, fakegpu.GPUs), []byte("gpu gpu gpu gpu gpu gpu gpu gpu"), 0o600)).To(
		Succeed())
	g.Expect(os.WriteFile(filepath.Join(stack.Lib, fakegpu.NVML), nil, 0o600)).To(Succeed())
	for i := range 8 {
		device := filepath.Join(dir, "sys/bus/pci/devices", fmt.Sprintf("0000:%02x:00.0", 7+i))
		g.Expect(os.MkdirAll(device, 0o700)).To(Succeed())
		g.Expect(os.WriteFile(filepath.Join(device, "vendor"), []byte("0x10de\n"), 0o600)).To(Succeed())
		g.Expect(os.WriteFile(filepath.Join(device, "class"), []byte("0x030200\n"), 0o600)).To(Succeed())
		g.Expect(os.Symlink("/sys/bus/pci/drivers/nvidia", filepath.Join(device, "driver"))).To(Succeed())
	}
	kernelLog := filepath.Join(dir, "kmsg")
	g.Expect(syscall.Mkfifo(kernelLog, 0o600)).To(Succeed())
	log, err := os.OpenFile(kernelLog, os.O_RDWR, 0)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = log.Close() })
	return stack, []string{
		"--port=0", "--kernel-log=" + kernelLog, "--termination-log=" + pod.termination, "--dir=" + pod.markers,
		"--program=" + program, "--sys-root=" + filepath.Join(dir, "sys"),
	}
}

// At rest the agent has one session with NVML a minute, writes nothing, and costs next to nothing. Here the sessions
// follow each other, so that the cost of one is measured in a short time.
func TestHealthAtRest(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	server := nodeapitest.Start(t, "node-a")
	_, flags := nvmlNode(t)
	command := exec.CommandContext(t.Context(), gpuNode, append([]string{"health",
		"--service-account-dir=" + server.ServiceAccountDir, "--nvml-interval=50ms"}, flags...)...)
	command.Env = append([]string{"NODE_NAME=node-a"}, server.Env...)
	agent := startExport(t, command)
	sessions := func() int {
		metrics, err := agent.metrics()
		g.Expect(err).NotTo(HaveOccurred())
		return int(sampleOf(metrics, `gpu_operator_node_nvml_sessions_total{`))
	}
	g.Eventually(sessions, "30s").Should(BeNumerically(">=", 3))
	g.Eventually(server.Patches, "30s").Should(Equal(1))

	before, used, begin := sessions(), cpuOf(t, agent.Process.Pid), time.Now()
	g.Eventually(sessions, "60s", "1s").Should(BeNumerically(">=", before+40))
	each := (cpuOf(t, agent.Process.Pid) - used) / time.Duration(sessions()-before)
	memory := float64(rss(t, agent.Process.Pid)) * 1024 / 1e6
	percent := 100 * each.Seconds() / 60
	t.Logf("%d sessions in %s, %s of a core each: %.3f %% with one a minute; RSS of the agent: %.1f MB; "+
		"writes: %d, watches: %d, reads: %d", sessions()-before, time.Since(begin).Round(time.Millisecond),
		each.Round(10*time.Microsecond), percent, memory, server.Patches(), server.Watches(), server.Gets())
	g.Expect(server.Patches()).To(Equal(1), "the first report alone")
	g.Expect(server.Watches()).To(Equal(1))
	g.Expect(memory).To(BeNumerically("<=", maxHealthMemory))
	g.Expect(percent).To(BeNumerically("<=", maxHealthCPU))
}

// A killed agent leaves no session behind, whatever the driver does: nothing holds a GPU after it.
func TestAKilledAgentHoldsNoGPU(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	server := nodeapitest.Start(t, "node-a")
	stack, flags := nvmlNode(t)
	g.Expect(os.WriteFile(filepath.Join(stack.Lib, fakegpu.Handles), nil, 0o600)).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(stack.Lib, fakegpu.NVML), []byte("hang:nvmlDeviceGetUUID"), 0o600)).To(Succeed())
	unload := func() error {
		file, err := os.Open(filepath.Join(stack.Lib, fakegpu.Handles))
		g.Expect(err).NotTo(HaveOccurred())
		defer file.Close()
		return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	command := exec.CommandContext(t.Context(), gpuNode, append([]string{"health",
		"--service-account-dir=" + server.ServiceAccountDir}, flags...)...)
	command.Env = append([]string{"NODE_NAME=node-a"}, server.Env...)
	agent := startExport(t, command)
	g.Eventually(unload, "30s").ShouldNot(Succeed(), "a session is in progress")
	g.Expect(agent.Process.Kill()).To(Succeed())
	g.Eventually(unload, "30s").Should(Succeed())
}

// sampleOf returns the sum of the samples whose line begins with the text.
func sampleOf(metrics, prefix string) float64 {
	sum := 0.0
	for line := range strings.Lines(metrics) {
		if !strings.HasPrefix(line, prefix) {
			continue
		}
		fields := strings.Fields(line)
		if value, err := strconv.ParseFloat(fields[len(fields)-1], 64); err == nil {
			sum += value
		}
	}
	return sum
}

// cpuOf returns the CPU time of the process and of its children that have ended.
func cpuOf(t *testing.T, pid int) time.Duration {
	t.Helper()
	g := NewWithT(t)
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	g.Expect(err).NotTo(HaveOccurred())
	_, after, _ := strings.Cut(string(content), ") ")
	fields, ticks := strings.Fields(after), 0
	// utime, stime, cutime and cstime.
	for _, field := range fields[11:15] {
		count, err := strconv.Atoi(field)
		g.Expect(err).NotTo(HaveOccurred())
		ticks += count
	}
	return time.Duration(ticks) * time.Second / 100
}
