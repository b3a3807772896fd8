//go:build linux

package node_test

import (
	"context"
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
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/node"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
	"github.com/clusterpolicy/gpu-operator/test/simulator/host"
)

const (
	gpuHealthy     = "nvidia.com/GPUHealthy"
	unhealthyTaint = "nvidia.com/gpu-operator.unhealthy"
	// reportKey is the annotation that a health agent writes.
	reportKey = "nvidia.com/gpu-operator.gpu-health"
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

// checkFaults lets a GPU fail: the agent and the operator report it and its end, the node has the taint meanwhile, and
// nothing is restarted.
func (b *env) checkFaults() {
	b.addNeighbour()
	b.awaitHealth(corev1.ConditionTrue, v1.ReasonGPUsHealthy)
	before := b.containers()
	for _, f := range []fault{
		{
			name: "an uncorrectable memory error, until the GPU has been reset", reason: "GPUUncorrectableECC", usable: gpus,
			line:     "NVRM: Xid (PCI:" + faultyGPU + "): 48, pid='<unknown>', An uncorrectable double bit error (DBE)",
			recovery: resetLine, facility: host.FacilityUser,
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
	b.Expect(b.machine.LogKernel(host.FacilityUser, resetLine)).To(Succeed())
	b.awaitHealth(corev1.ConditionTrue, v1.ReasonGPUsHealthy)
	b.t.Logf("its end was reported after %s", since(begin))
}

func (b *env) checkFault(f fault) {
	b.t.Helper()
	// A program cannot make up a fault.
	b.Expect(b.machine.LogKernel(host.FacilityUser, f.line)).To(Succeed())
	begin := time.Now()
	b.Expect(b.machine.LogKernel(host.FacilityKernel, f.line)).To(Succeed())
	b.awaitHealth(corev1.ConditionFalse, f.reason)
	b.Expect(b.gpuHealthy(b).Message).To(ContainSubstring(faultyGPU + ".0"))
	reported := since(begin)
	b.awaitTaint(true)
	tainted := since(begin)
	b.awaitUsable(f.usable)
	b.t.Logf("%s: %s after %s, the taint after %s, %d of %d usable after %s",
		f.name, f.reason, reported, tainted, f.usable, gpus, since(begin))
	begin = time.Now()
	b.Expect(b.machine.LogKernel(f.facility, f.recovery)).To(Succeed())
	b.awaitHealth(corev1.ConditionTrue, v1.ReasonGPUsHealthy)
	b.awaitUsable(gpus)
	reported = since(begin)
	b.awaitTaint(false)
	b.t.Logf("its end was reported after %s, and the taint removed after %s", reported, since(begin))
}

// addNeighbour adds a simulated node with the same GPUs, as the last healthy node is not tainted, until the end of the
// test.
func (b *env) addNeighbour() {
	b.t.Helper()
	ctx, stop := context.WithCancel(b.t.Context())
	sim, err := simulator.New(simulator.Options{Config: b.cluster.SimulatorConfig})
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(sim.Start(ctx)).To(Succeed())
	name, err := sim.AddNode(ctx, simulator.NodeSpec{Model: simulator.ModelH100, GPUs: gpus})
	b.Expect(err).NotTo(HaveOccurred())
	b.t.Cleanup(func() { stop(); sim.Stop(); b.removeNeighbour(name) })
	nodes := b.client.CoreV1().Nodes()
	added, err := nodes.Get(ctx, name, metav1.GetOptions{})
	b.Expect(err).NotTo(HaveOccurred())
	report := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, reportKey,
		fmt.Sprintf(`{"boot":%q,"faults":[]}`, added.Status.NodeInfo.BootID))
	_, err = nodes.Patch(ctx, name, types.MergePatchType, []byte(report), metav1.PatchOptions{})
	b.Expect(err).NotTo(HaveOccurred())
	b.Eventually(func(g Gomega) {
		policy, err := b.policy()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(policy.Status.NodeSummary).To(HaveField("ReadyOfTotal", "2/2"))
	}, "2m", "100ms").Should(Succeed(), b.describe)
}

// removeNeighbour removes a node without a kubelet, and its pods.
func (b *env) removeNeighbour(name string) {
	ctx := context.Background()
	b.Expect(b.client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})).To(Succeed())
	b.Eventually(func(g Gomega) {
		of := metav1.ListOptions{FieldSelector: "spec.nodeName=" + name}
		pods := b.client.CoreV1().Pods(namespace)
		g.Expect(pods.DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}, of)).To(Succeed())
		left, err := pods.List(ctx, of)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(left.Items).To(BeEmpty())
		policy, err := b.policy()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(policy.Status.NodeSummary).To(HaveField("ReadyOfTotal", "1/1"))
	}, "1m", "200ms").Should(Succeed(), b.describe)
}

// awaitTaint waits until the node has the taint of an unhealthy GPU, or has it no more.
func (b *env) awaitTaint(there bool) {
	b.t.Helper()
	b.Eventually(func() bool {
		return slices.ContainsFunc(b.node(b).Spec.Taints, func(t corev1.Taint) bool { return t.Key == unhealthyTaint })
	}, "2m", "50ms").Should(Equal(there), b.describe)
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
		of := slices.IndexFunc(policy.Status.Nodes, func(n v1.NodeStatus) bool { return n.Name == machineName })
		g.Expect(of).NotTo(Equal(-1))
		g.Expect(policy.Status.Nodes[of].GPUs).To(HaveField("Usable", BeEquivalentTo(count)))
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
	pods, err := b.client.CoreV1().Pods(namespace).
		List(b.t.Context(), metav1.ListOptions{LabelSelector: "app=" + agentApp})
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
