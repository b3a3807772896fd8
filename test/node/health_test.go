//go:build linux

package node_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/node"
)

const (
	gpuHealthy = "nvidia.com/GPUHealthy"
	// onNode is the program of the operator on nodes, agent its subcommand for the health of GPUs.
	onNode, agentCommand = "/usr/bin/gpu-node", "health"
	agentApp             = "nvidia-gpu-health"
	// mostAgentMemory, in bytes, and mostAgentCPU, as a part of a core, limit an agent at rest.
	mostAgentMemory = 30 << 20
	mostAgentCPU    = 0.003
	// restTime is how long a node is watched at rest.
	restTime = 2 * time.Minute
)

// nvmlSessionsLine is the metric of the sessions that have shown the state of the GPUs.
var nvmlSessionsLine = regexp.MustCompile(`(?m)^gpu_operator_node_nvml_sessions_total\{.*"ok".*\} ([0-9]+)$`)

// faultyGPU is the address of the machine's first GPU.
const faultyGPU = "0000:07:00"

// resetLine is what a person who has reset it writes into the kernel log.
const resetLine = "gpu-operator: GPU " + faultyGPU + ".0 has been reset"

// fault is a fault of a GPU, as the kernel log has it and its end.
type fault struct {
	name, line string
	reason     string
	// usable is how many GPUs are left.
	usable int
	// recovery is the line that ends it, of the kernel or of a program.
	recovery string
	facility int
}

// checkFaults lets a GPU fail: the agent and the operator report it and its end, and nothing is restarted.
func (b *env) checkFaults() {
	b.awaitHealth(corev1.ConditionTrue, v1.ReasonGPUsHealthy)
	before := b.containers()
	for _, f := range []fault{
		{
			name: "an uncorrectable memory error, until the GPU has been reset", reason: "GPUUncorrectableECC", usable: gpus,
			line:     "NVRM: Xid (PCI:" + faultyGPU + "): 48, pid='<unknown>', An uncorrectable double bit error (DBE)",
			recovery: resetLine, facility: node.FacilityUser,
		},
		{
			name: "a lost GPU, until the driver needs nothing more", reason: "GPULost", usable: gpus - 1,
			line: "NVRM: Xid (PCI:" + faultyGPU + "): 79, GPU has fallen off the bus.",
			recovery: "NVRM: Xid (PCI:" + faultyGPU + "): 154, " +
				"GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)",
		},
	} {
		b.checkFault(f)
	}
	b.checkMeasuredFault()
	b.Expect(b.containers()).To(Equal(before), "no container is restarted")
}

// checkMeasuredFault lets a GPU fail in a way that only the driver's library shows, until it shows it no more.
func (b *env) checkMeasuredFault() {
	b.t.Helper()
	state := b.machine.Running(filepath.Join("/run/nvidia/driver", node.LibraryDir, "FAKE_NVML"))
	begin := time.Now()
	b.Expect(os.WriteFile(state, []byte("remap.failed@0=1"), 0o644)).To(Succeed())
	b.awaitHealth(corev1.ConditionFalse, "GPUMemoryRemapFailed")
	b.Expect(b.gpuHealthy(b).Message).To(ContainSubstring(faultyGPU + ".0"))
	b.t.Logf("a failed row remap that NVML shows was reported after %s", since(begin))
	begin = time.Now()
	b.Expect(os.Remove(state)).To(Succeed())
	b.Expect(b.machine.LogKernel(node.FacilityUser, resetLine)).To(Succeed())
	b.awaitHealth(corev1.ConditionTrue, v1.ReasonGPUsHealthy)
	b.t.Logf("its end was reported after %s", since(begin))
}

func (b *env) checkFault(f fault) {
	b.t.Helper()
	// A program cannot make up a fault.
	b.Expect(b.machine.LogKernel(node.FacilityUser, f.line)).To(Succeed())
	begin := time.Now()
	b.Expect(b.machine.LogKernel(node.FacilityKernel, f.line)).To(Succeed())
	b.awaitHealth(corev1.ConditionFalse, f.reason)
	b.Expect(b.gpuHealthy(b).Message).To(ContainSubstring(faultyGPU + ".0"))
	reported := since(begin)
	b.awaitUsable(f.usable)
	b.t.Logf("%s: %s after %s, %d of %d usable after %s", f.name, f.reason, reported, f.usable, gpus, since(begin))
	begin = time.Now()
	b.Expect(b.machine.LogKernel(f.facility, f.recovery)).To(Succeed())
	b.awaitHealth(corev1.ConditionTrue, v1.ReasonGPUsHealthy)
	b.awaitUsable(gpus)
	b.t.Logf("its end was reported after %s", since(begin))
}

// awaitHealth waits until the node reports the health of its GPUs: an agent does not write often.
func (b *env) awaitHealth(status corev1.ConditionStatus, reason string) {
	b.t.Helper()
	b.Eventually(func(g Gomega) {
		g.Expect(b.gpuHealthy(g)).To(And(HaveField("Status", status), HaveField("Reason", reason)))
	}, "3m", "50ms").Should(Succeed(), b.describe)
}

// awaitUsable waits until the policy's status has this many usable GPUs.
func (b *env) awaitUsable(count int) {
	b.t.Helper()
	b.Eventually(func(g Gomega) {
		policy, err := b.policy()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(policy.Status.NodeSummary.GPUs).To(HaveField("Usable", BeEquivalentTo(count)))
	}, "2m", "50ms").Should(Succeed(), b.describe)
}

// gpuHealthy returns the node's condition about the health of its GPUs.
func (b *env) gpuHealthy(g Gomega) corev1.NodeCondition {
	for _, condition := range b.node(g).Status.Conditions {
		if condition.Type == gpuHealthy {
			return condition
		}
	}
	return corev1.NodeCondition{}
}

// checkRest checks that nothing of the stack writes while nothing changes, and what the health agent needs meanwhile.
func (b *env) checkRest() {
	b.awaitReady()
	b.awaitQuiet()
	agent := b.process(onNode, agentCommand)
	mark, err := b.cluster.Mark()
	b.Expect(err).NotTo(HaveOccurred())
	begin, cpu, sessions := time.Now(), usedCPU(b, agent), b.nvmlSessions()
	b.Consistently(func() string { return b.stackWrites(mark) }, restTime, "5s").Should(BeEmpty())
	used := usedCPU(b, agent) - cpu
	share := float64(used) / float64(time.Since(begin))
	memory, program := workingSet(b, agent), resident(b, agent)
	b.t.Logf("in %s at rest: 0 writes; the health agent used %s of CPU, %.3f %% of a core; %.1f MB, RSS %.1f MB",
		since(begin), used.Round(time.Millisecond), 100*share, float64(memory)/(1<<20), float64(program)/(1<<20))
	sessions = b.nvmlSessions() - sessions
	b.t.Logf("%d sessions with NVML, %.1f a minute", sessions, float64(sessions)/time.Since(begin).Minutes())
	b.Expect(sessions).To(BeNumerically(">=", 1))
	b.Expect(share).To(BeNumerically("<=", mostAgentCPU))
	// The pages of the program count for the first of its containers.
	b.Expect(max(memory, program)).To(BeNumerically("<=", mostAgentMemory))
}

// nvmlSessions returns how many sessions with NVML of the agent have shown the state of the GPUs.
func (b *env) nvmlSessions() int {
	b.t.Helper()
	pods, err := b.client.CoreV1().Pods(namespace).List(b.t.Context(), metav1.ListOptions{LabelSelector: "app=" + agentApp})
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(pods.Items).To(HaveLen(1))
	response := b.get("http://"+pods.Items[0].Status.PodIP+":8001/metrics", "")
	metrics, err := io.ReadAll(response.Body)
	b.Expect(err).NotTo(HaveOccurred())
	found := nvmlSessionsLine.FindStringSubmatch(string(metrics))
	if found == nil {
		return 0
	}
	count, err := strconv.Atoi(found[1])
	b.Expect(err).NotTo(HaveOccurred())
	return count
}

// stackWrites returns the writes of the operator and of its operands since a mark, Events included.
func (b *env) stackWrites(mark cluster.Mark) string {
	b.t.Helper()
	calls, err := b.cluster.Since(mark)
	b.Expect(err).NotTo(HaveOccurred())
	var own cluster.Calls
	for _, call := range append(calls.Writes(), calls.Events()...) {
		if strings.HasPrefix(call.User, cluster.ServiceAccountUser(namespace, "")) {
			own = append(own, call)
		}
	}
	return own.String()
}

// awaitQuiet waits until the stack has written nothing for as long as its latest write may follow a change.
func (b *env) awaitQuiet() {
	b.t.Helper()
	const quiet = 15 * time.Second
	var mark cluster.Mark
	var begin time.Time
	b.Eventually(func() time.Duration {
		if begin.IsZero() || b.stackWrites(mark) != "" {
			var err error
			mark, err = b.cluster.Mark()
			b.Expect(err).NotTo(HaveOccurred())
			begin = time.Now()
		}
		return time.Since(begin)
	}, "3m", "500ms").Should(BeNumerically(">=", quiet))
}

// process returns the process of a program, by its path in its container, which has this word in its command line.
func (b *env) process(program, word string) int {
	b.t.Helper()
	var found []int
	for _, pid := range b.machine.Processes(program) {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && slices.Contains(strings.Split(string(line), "\x00"), word) {
			found = append(found, pid)
		}
	}
	b.Expect(found).To(HaveLen(1), word)
	return found[0]
}
