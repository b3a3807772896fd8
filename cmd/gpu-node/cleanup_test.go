package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"
)

// cleanup returns the command for this host, whose processes are those of the computer, and its termination message.
func (h gpuHost) cleanup(t *testing.T, flags ...string) (command *exec.Cmd, termination string) {
	t.Helper()
	termination = filepath.Join(t.TempDir(), "termination-log")
	NewWithT(t).Expect(os.WriteFile(termination, nil, 0o600)).To(Succeed())
	args := append([]string{"cleanup", "--host-root=" + h.root, "--termination-log=" + termination, "--interval=10ms"},
		flags...)
	return exec.CommandContext(t.Context(), gpuNode, args...), termination
}

// newUsedHost returns a host on which the stack was.
func newUsedHost(t *testing.T) gpuHost {
	t.Helper()
	host := gpuHost{root: t.TempDir()}
	for path, content := range map[string]string{
		"etc/os-release": "ID=ubuntu\n", "proc/1/mountinfo": "", "run/nvidia/validations/driver-ready": "",
		"run/nvidia/nvidia-driver.pid": "1\n", "usr/local/nvidia/toolkit/nvidia-ctk": "",
	} {
		host.write(t, path, content)
	}
	return host
}

func TestCleanupSucceedsWithoutAMessage(t *testing.T) {
	g, host := NewWithT(t), newUsedHost(t)
	for range 2 {
		command, termination := host.cleanup(t)
		out, err := command.CombinedOutput()
		g.Expect(err).NotTo(HaveOccurred(), string(out))
		g.Expect(string(out)).To(ContainSubstring("the host is clean"))
		g.Expect(os.ReadFile(termination)).To(BeEmpty())
		for path, kept := range map[string]bool{"run/nvidia": false, "usr/local/nvidia": false, "etc/os-release": true} {
			_, err := os.Lstat(host.path(path))
			g.Expect(err == nil).To(Equal(kept), path)
		}
	}
}

func TestCleanupSaysWhatStays(t *testing.T) {
	g, host := NewWithT(t), newUsedHost(t)
	host.write(t, "run/nvidia/mine", "")
	host.write(t, "proc/modules", "nvidia_uvm 10 0 - Live 0x0\nnvidia 10 2 nvidia_uvm, Live 0x0\n")
	command, termination := host.cleanup(t)
	out, err := command.CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred(), string(out))
	g.Expect(os.ReadFile(termination)).To(BeEquivalentTo(
		"/run/nvidia, made by the kubelet for a pod of the stack: it has files that the stack is not known to make: mine\n" +
			"kernel modules that stay loaded: nvidia_uvm (references: 0), nvidia (references: 2); " +
			"unless they belong to the host's own driver, unload them or restart the node\n"))
}

func TestCleanupTriesAgainWhatIsUsed(t *testing.T) {
	g, host := NewWithT(t), newUsedHost(t)
	locked, err := os.Open(host.path("run/nvidia/nvidia-driver.pid"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(syscall.Flock(int(locked.Fd()), syscall.LOCK_EX)).To(Succeed())
	command, termination := host.cleanup(t)
	running := startUntilLogged(t, command, "waiting")
	g.Expect(locked.Close()).To(Succeed())
	g.Expect(running.exitCode(t)).To(Equal(0))
	g.Expect(os.ReadFile(termination)).To(BeEmpty())
	g.Expect(host.path("run/nvidia")).NotTo(BeADirectory())
}

func TestCleanupGivesUpWhatIsUsed(t *testing.T) {
	g, host := NewWithT(t), newUsedHost(t)
	locked, err := os.Open(host.path("run/nvidia/nvidia-driver.pid"))
	g.Expect(err).NotTo(HaveOccurred())
	defer locked.Close()
	g.Expect(syscall.Flock(int(locked.Fd()), syscall.LOCK_EX)).To(Succeed())
	t.Run("after its patience", func(t *testing.T) {
		g := NewWithT(t)
		command, termination := host.cleanup(t, "--patience=30ms")
		g.Expect(command.Run()).To(Succeed())
		g.Expect(os.ReadFile(termination)).To(BeEquivalentTo(
			"/run/nvidia/nvidia-driver.pid, made by the driver: the driver still runs: it holds the lock\n"))
	})
	t.Run("at SIGTERM, which is a failure", func(t *testing.T) {
		g := NewWithT(t)
		command, termination := host.cleanup(t)
		running := startUntilLogged(t, command, "waiting")
		g.Expect(running.Process.Signal(syscall.SIGTERM)).To(Succeed())
		g.Expect(running.exitCode(t)).To(Equal(1))
		g.Expect(os.ReadFile(termination)).To(BeEquivalentTo("terminated signal received while " +
			"/run/nvidia/nvidia-driver.pid, made by the driver: the driver still runs: it holds the lock\n"))
	})
}

func TestCleanupFailsWithTheReason(t *testing.T) {
	t.Run("without the host", func(t *testing.T) {
		g, host := NewWithT(t), gpuHost{root: "/no/host"}
		command, termination := host.cleanup(t)
		g.Expect(command.Run()).NotTo(Succeed())
		g.Expect(command.ProcessState.ExitCode()).To(Equal(1))
		text, err := os.ReadFile(termination)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(text)).To(HavePrefix("open the host's root; mount it at /no/host: "))
	})
	t.Run("with a message that the kubelet reports as a whole", func(t *testing.T) {
		g, host := NewWithT(t), newUsedHost(t)
		for i := range 100 {
			host.write(t, fmt.Sprintf("usr/local/nvidia/toolkit/%d-%s/x", i, strings.Repeat("x", 80)), "")
			host.write(t, fmt.Sprintf("run/nvidia/mps/nvidia.com/gpu-%d/%d-%s", i, i, strings.Repeat("x", 80)), "")
		}
		command, termination := host.cleanup(t)
		g.Expect(command.Run()).To(Succeed())
		text, err := os.ReadFile(termination)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(len(text)).To(BeNumerically("<=", 4096))
		g.Expect(string(text)).To(MatchRegexp(`and \d+ more, see the log\n$`))
	})
}
