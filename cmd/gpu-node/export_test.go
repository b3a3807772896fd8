package main_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi/nodeapitest"
)

// exporting is an exporter that serves its metrics.
type exporting struct {
	process
	url string
}

// startExport starts the command on a port that the kernel chooses, which it reads from the log.
func startExport(t *testing.T, command *exec.Cmd) exporting {
	t.Helper()
	g := NewWithT(t)
	stderr, err := command.StderrPipe()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(command.Start()).To(Succeed())
	ports, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			if _, port, found := strings.Cut(lines.Text(), "address=[::]:"); found {
				ports <- port
			}
		}
		ended <- command.Wait()
	}()
	var port string
	g.Eventually(ports, "1m").Should(Receive(&port))
	return exporting{process: process{Cmd: command, ended: ended}, url: "http://127.0.0.1:" + port}
}

func (e exporting) metrics() (string, error) {
	answer, err := http.Get(e.url + "/metrics")
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	return string(body), err
}

func TestExportServesTheCurrentStateUntilSIGTERM(t *testing.T) {
	g := NewWithT(t)
	pod, host, server := newPod(t), newGPUHost(t), nodeapitest.Start(t, "node-a")
	command := pod.command(t, "export", "--port=0", "--service-account-dir="+server.ServiceAccountDir,
		"--host-root="+host.root, "--driver-root="+host.path("no-driver-container"),
		"--sys-root="+host.path("sys"), "--proc-root="+host.path("proc"))
	command.Env = append([]string{"NODE_NAME=node-a", "METRICS_PORT=1"}, server.Env...)
	exporter := startExport(t, command)

	g.Expect(exporter.metrics()).To(And(
		ContainSubstring("gpu_operator_node_driver_ready{node=\"node-a\"} 0\n"),
		ContainSubstring("gpu_operator_nvidia_pci_devices_total{node=\"node-a\"} 1\n"),
		ContainSubstring("gpu_operator_node_device_plugin_devices_total{node=\"node-a\"} 0\n")))
	pod.put(t, "driver-ready", "IS_HOST_DRIVER=true\n")
	g.Expect(exporter.metrics()).To(And(
		ContainSubstring("gpu_operator_node_driver_ready{node=\"node-a\"} 1\n"),
		ContainSubstring("gpu_operator_node_stage_seconds{node=\"node-a\",stage=\"toolkit\"} ")))
	g.Eventually(exporter.metrics, "10s").
		Should(ContainSubstring("gpu_operator_node_driver_validation{node=\"node-a\"} 1\n"))
	g.Expect(os.ReadDir(host.path("dev/char"))).To(HaveLen(1), "it changes nothing on the node")
	t.Logf("RSS of export: %.1f MB", float64(rss(t, exporter.Process.Pid))*1024/1e6)

	g.Expect(exporter.Process.Signal(syscall.SIGTERM)).To(Succeed())
	g.Expect(exporter.exitCode(t)).To(Equal(0))
	g.Expect(pod.message(t)).To(BeEmpty())
}

func TestExportReportsThatItsPortIsInUse(t *testing.T) {
	g := NewWithT(t)
	taken, err := net.Listen("tcp", ":0")
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = taken.Close() }()
	_, port, err := net.SplitHostPort(taken.Addr().String())
	g.Expect(err).NotTo(HaveOccurred())
	pod := newPod(t)
	command := pod.command(t, "export")
	command.Env = []string{"NODE_NAME=node-a", "METRICS_PORT=" + port}
	g.Expect(command.Run()).To(HaveOccurred())
	g.Expect(command.ProcessState.ExitCode()).To(Equal(1))
	g.Expect(pod.message(t)).
		To(HavePrefix("the metrics cannot be served on port " + port + "; set a free one by --port or METRICS_PORT: "))
	g.Expect(strings.Count(pod.message(t), "\n")).To(Equal(1))
}

func TestExportUsageErrorsExitWith2(t *testing.T) {
	tests := map[string]struct {
		flags []string
		env   string
		want  string
	}{
		"a port that is no number": {env: "METRICS_PORT=http", want: "the environment variable METRICS_PORT: "},
		"a port that is too high":  {env: "METRICS_PORT=" + strconv.Itoa(1<<16), want: "invalid port 65536"},
		"a port below zero":        {flags: []string{"--port=-1"}, want: "invalid port -1"},
		"an unknown marker": {
			flags: []string{"--markers=driver,mofed"},
			want:  `unknown marker "mofed"; use --markers with some of ["driver" "toolkit" "cuda" "plugin"]`,
		},
		"no node":                     {env: "NODE_NAME=", want: "no node given"},
		"a boolean that is not one":   {env: "DRIVER_VALIDATION_SKIP_GPU_INIT=yes", want: "DRIVER_VALIDATION_SKIP_GPU_INIT"},
		"an argument that has no use": {flags: []string{"x"}, want: "unknown command"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			command := exec.CommandContext(t.Context(), gpuNode, append([]string{"export"}, tc.flags...)...)
			command.Env = []string{"NODE_NAME=node-a", tc.env}
			out, _ := command.CombinedOutput()
			g.Expect(command.ProcessState.ExitCode()).To(Equal(2), string(out))
			g.Expect(string(out)).To(ContainSubstring(tc.want))
		})
	}
}
