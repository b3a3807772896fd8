package main_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi/nodeapitest"
)

// discoverer is a pod of node discovery: its view of the node, and the API server.
type discoverer struct {
	root   string
	server *nodeapitest.Server
}

func newDiscoverer(t *testing.T) discoverer {
	t.Helper()
	d := discoverer{root: t.TempDir(), server: nodeapitest.Start(t, "node-a")}
	d.put(t, "proc/sys/kernel/osrelease", "6.8.0-45-generic\n")
	d.put(t, "host/usr/lib/os-release", "ID=ubuntu\nVERSION_ID=\"24.04\"\n")
	d.put(t, "termination-log", "")
	NewWithT(t).Expect(os.MkdirAll(d.root+"/sys/bus/pci/devices", 0o700)).To(Succeed())
	return d
}

// put writes a file atomically, like its writer.
func (d discoverer) put(t *testing.T, path, content string) {
	t.Helper()
	g := NewWithT(t)
	tmp := filepath.Join(t.TempDir(), "new")
	g.Expect(os.WriteFile(tmp, []byte(content), 0o600)).To(Succeed())
	g.Expect(os.MkdirAll(filepath.Dir(filepath.Join(d.root, path)), 0o700)).To(Succeed())
	g.Expect(os.Rename(tmp, filepath.Join(d.root, path))).To(Succeed())
}

func (d discoverer) addGPU(t *testing.T, address string) {
	t.Helper()
	g := NewWithT(t)
	d.put(t, "new/vendor", "0x10de\n")
	d.put(t, "new/class", "0x030200\n")
	g.Expect(os.Rename(d.root+"/new", d.root+"/sys/bus/pci/devices/"+address)).To(Succeed())
}

func (d discoverer) command(t *testing.T, flags ...string) *exec.Cmd {
	t.Helper()
	args := append([]string{
		"discover", "--sys-root=" + d.root + "/sys", "--proc-root=" + d.root + "/proc", "--host-root=" + d.root + "/host",
		"--features-dir=" + d.root + "/features.d", "--service-account-dir=" + d.server.ServiceAccountDir,
		"--termination-log=" + d.root + "/termination-log",
	}, flags...)
	command := exec.CommandContext(t.Context(), gpuNode, args...)
	command.Env = append([]string{"NODE_NAME=node-a"}, d.server.Env...)
	return command
}

func TestDiscoverKeepsTheLabelsCurrentUntilSIGTERM(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	d := newDiscoverer(t)
	process := startUntilLogged(t, d.command(t, "--resync=50ms", "--keep-missing=0s"), "the node is labelled")
	g.Expect(d.server.Labels()).To(Equal(map[string]string{
		labels.DiscoveryKernel: "6.8.0-45-generic", labels.DiscoveryOSID: "ubuntu", labels.DiscoveryOSVersion: "24.04",
		labels.DiscoveryOSVersionMajor: "24", labels.DiscoveryOSVersionMinor: "04",
	}))

	d.addGPU(t, "0000:3b:00.0")
	g.Eventually(d.server.Labels, "1m").Should(And(
		HaveKeyWithValue(labels.DiscoveryPCIPresent, "true"), HaveKeyWithValue(labels.DiscoveryPCI3D, "true")))

	d.put(t, "features.d/gfd", "nvidia.com/gfd.timestamp=1\nnvidia.com/gpu.count=1\nnvidia.com/gpu.deploy.driver=false\n")
	g.Eventually(d.server.Labels, "1m").Should(HaveKeyWithValue("nvidia.com/gpu.count", "1"))
	g.Expect(d.server.Labels()).NotTo(HaveKey("nvidia.com/gpu.deploy.driver"))

	g.Expect(os.Remove(d.root + "/features.d/gfd")).To(Succeed())
	g.Eventually(d.server.Labels, "1m").ShouldNot(HaveKey("nvidia.com/gpu.count"))
	g.Expect(d.server.Patches()).To(Equal(4))

	d.put(t, "host/usr/lib/os-release", "ID=ubuntu\nVERSION_ID=\"26.04\"\n") // An upgrade without a reboot.
	g.Eventually(d.server.Labels, "1m").Should(HaveKeyWithValue(labels.DiscoveryOSVersion, "26.04"))
	g.Expect(d.server.Patches()).To(Equal(5))

	gets := d.server.Gets()
	g.Eventually(d.server.Gets, "1m").Should(BeNumerically(">", gets+2))
	g.Expect(d.server.Patches()).To(Equal(5), "it looks, but has nothing to write")

	memory := rss(t, process.Process.Pid)
	t.Logf("resident memory: %d KiB", memory)
	g.Expect(memory).To(BeNumerically("<", 16<<10), "it runs on every node")
	g.Expect(process.Process.Signal(syscall.SIGTERM)).To(Succeed())
	g.Expect(process.exitCode(t)).To(Equal(0))
	g.Expect(os.ReadFile(d.root + "/termination-log")).To(BeEmpty())
}

func TestDiscoverEndsAtSIGTERMWhileTheAPIServerIsSilent(t *testing.T) {
	g := NewWithT(t)
	d := newDiscoverer(t)
	requested, end := make(chan struct{}, 1), make(chan struct{})
	t.Cleanup(func() { close(end) })
	d.server.Before(func(string) {
		requested <- struct{}{}
		<-end
	})
	command := d.command(t)
	g.Expect(command.Start()).To(Succeed())
	g.Eventually(requested, "1m").Should(Receive())
	g.Expect(command.Process.Signal(syscall.SIGTERM)).To(Succeed())
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	g.Eventually(ended, "1m").Should(Receive(BeNil()), "the exit code is 0")
}

func TestDiscoverOnceLabelsAndEnds(t *testing.T) {
	g := NewWithT(t)
	d := newDiscoverer(t)
	d.addGPU(t, "0000:3b:00.0")
	g.Expect(d.command(t, "--once").Run()).To(Succeed())
	g.Expect(d.server.Labels()).To(HaveKeyWithValue(labels.DiscoveryPCIPresent, "true"))
	g.Expect(d.command(t, "--once").Run()).To(Succeed())
	g.Expect(d.server.Patches()).To(Equal(1))
}

func TestDiscoverOnceReportsWhyItFails(t *testing.T) {
	g := NewWithT(t)
	d := newDiscoverer(t)
	d.server.Refuse(http.StatusForbidden, "denied by policy")
	command := d.command(t, "--once")
	g.Expect(command.Run()).To(HaveOccurred())
	g.Expect(command.ProcessState.ExitCode()).To(Equal(1))
	g.Expect(os.ReadFile(d.root + "/termination-log")).To(BeEquivalentTo(
		"node node-a is not labelled: the API server refuses GET /api/v1/nodes/node-a (403 Forbidden: denied by policy): " +
			"check the roles of the pod's service account and the admission policies\n"))
}

func TestDiscoverNamesWhatThePodIsMissing(t *testing.T) {
	g := NewWithT(t)
	d := newDiscoverer(t)
	command := d.command(t)
	command.Env = []string{"NODE_NAME=node-a"}
	g.Expect(command.Run()).To(HaveOccurred())
	g.Expect(command.ProcessState.ExitCode()).To(Equal(1))
	g.Expect(os.ReadFile(d.root + "/termination-log")).
		To(HavePrefix("node node-a is not labelled: KUBERNETES_SERVICE_HOST"))
}

func TestDiscoverUsageErrorsExitWith2(t *testing.T) {
	tests := map[string]struct {
		flags []string
		env   []string
		want  string
	}{
		"no node": {want: "no node given; set the environment variable NODE_NAME"},
		"an unknown mode": {
			flags: []string{"--mode=nfd"},
			env:   []string{"NODE_NAME=a"},
			want:  `unknown discovery mode "nfd"; use auto or builtin`,
		},
		"no resync": {
			flags: []string{"--resync=0s"},
			env:   []string{"NODE_NAME=a"},
			want:  "--resync must be above 0s",
		},
		"a time before now": {
			flags: []string{"--keep-missing=-1s"},
			env:   []string{"NODE_NAME=a"},
			want:  "--keep-missing must not be negative",
		},
		"an argument": {flags: []string{"x"}, env: []string{"NODE_NAME=a"}, want: "unknown command"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			command := exec.CommandContext(t.Context(), gpuNode, append([]string{"discover"}, tc.flags...)...)
			command.Env = append([]string{}, tc.env...)
			out, _ := command.CombinedOutput()
			g.Expect(command.ProcessState.ExitCode()).To(Equal(2), string(out))
			g.Expect(string(out)).To(ContainSubstring(tc.want))
		})
	}
}

// rss returns the resident memory of a process in KiB.
func rss(t *testing.T, pid int) int {
	t.Helper()
	g := NewWithT(t)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	g.Expect(err).NotTo(HaveOccurred())
	_, after, found := strings.Cut(string(status), "VmRSS:")
	g.Expect(found).To(BeTrue())
	var size int
	_, err = fmt.Sscanf(after, "%d", &size)
	g.Expect(err).NotTo(HaveOccurred())
	return size
}
