package main_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi/nodeapitest"
)

// maxHealthMemory, in MB, is what the health agent may use, also in a storm of errors.
const maxHealthMemory = 30

// A storm of 10,000 errors is counted and makes at most two writes at once: the first report, and one after it.
func TestHealthReportsAStormOfErrorsUntilSIGTERM(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	server, dir := nodeapitest.Start(t, "node-a"), t.TempDir()
	kernelLog, termination := filepath.Join(dir, "kmsg"), filepath.Join(dir, "termination-log")
	g.Expect(syscall.Mkfifo(kernelLog, 0o600)).To(Succeed())
	// Opened for both, so that neither end waits for the other.
	log, err := os.OpenFile(kernelLog, os.O_RDWR, 0)
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = log.Close() }()
	command := exec.CommandContext(t.Context(), gpuNode, "health", "--port=0", "--kernel-log="+kernelLog,
		"--service-account-dir="+server.ServiceAccountDir, "--termination-log="+termination)
	command.Env = append([]string{"NODE_NAME=node-a", "METRICS_PORT=1"}, server.Env...)
	agent := startExport(t, command)
	g.Eventually(server.Annotations, "30s").Should(
		HaveKeyWithValue("nvidia.com/gpu-operator.gpu-health", ContainSubstring(`"faults":[]`)))

	const storm = 10_000
	for i := range storm {
		_, err := fmt.Fprintf(log, "3,%d,%d,-;NVRM: Xid (PCI:0000:%02x:00): 79, pid=%d, GPU has fallen off the bus.\n",
			i, i, i%8, i)
		g.Expect(err).NotTo(HaveOccurred())
	}
	const last = `class="Reboot",node="node-a",pci="0000:07:00.0"`
	g.Eventually(agent.metrics, "30s").Should(And(
		ContainSubstring(fmt.Sprintf(`gpu_operator_node_gpu_xid_total{%s,xid="79"} %d`, last, storm/8)),
		ContainSubstring(`gpu_operator_node_gpu_unhealthy{`+last+`,reason="GPULost"} 1`)))
	g.Expect(server.Patches()).To(BeNumerically("<=", 2))
	used := float64(rss(t, agent.Process.Pid)) * 1024 / 1e6
	t.Logf("RSS of health after %d errors: %.1f MB; writes: %d", storm, used, server.Patches())
	g.Expect(used).To(BeNumerically("<=", maxHealthMemory))

	g.Expect(agent.Process.Signal(syscall.SIGTERM)).To(Succeed())
	g.Expect(agent.exitCode(t)).To(Equal(0))
	t.Logf("CPU of health: %s", agent.ProcessState.UserTime()+agent.ProcessState.SystemTime())
}

func TestHealthNamesWhatItNeeds(t *testing.T) {
	server := nodeapitest.Start(t, "node-a")
	for name, test := range map[string]struct {
		flags []string
		env   []string
		code  int
		want  string
	}{
		"no kernel log": {
			flags: []string{"--kernel-log=/none"}, env: append([]string{"NODE_NAME=node-a"}, server.Env...), code: 1,
			want: "the kernel log cannot be read; is the container privileged?",
		},
		"no API server": {env: []string{"NODE_NAME=node-a"}, code: 1, want: "run this in a pod"},
		"no node":       {code: 2, want: "no node given"},
		"a wrong port":  {flags: []string{"--port=-1"}, env: []string{"NODE_NAME=node-a"}, code: 2, want: "invalid port -1"},
		"a long interval": {
			env: []string{"NODE_NAME=node-a", "NVML_INTERVAL=6m"}, code: 2,
			want: "--nvml-interval (NVML_INTERVAL) must not be above 5m0s, is 6m0s",
		},
		"the longest interval": {
			env: []string{"NODE_NAME=node-a", "NVML_INTERVAL=5m"}, code: 1, want: "run this in a pod",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var output bytes.Buffer
			command := exec.CommandContext(t.Context(), gpuNode, append([]string{"health",
				"--service-account-dir=" + server.ServiceAccountDir, "--termination-log=" + filepath.Join(t.TempDir(), "log"),
			}, test.flags...)...)
			command.Env, command.Stderr = test.env, &output
			g.Expect(command.Run()).NotTo(Succeed())
			g.Expect(command.ProcessState.ExitCode()).To(Equal(test.code), output.String())
			g.Expect(output.String()).To(ContainSubstring(test.want))
		})
	}
}
