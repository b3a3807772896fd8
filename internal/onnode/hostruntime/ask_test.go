package hostruntime_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/hostruntime"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/hostruntime/hostruntimetest"
)

func TestMain(m *testing.M) {
	hostruntimetest.Main()
	os.Exit(m.Run())
}

// start starts a runtime with a configuration, and returns its socket, its process, and a function that changes its
// file.
func start(t *testing.T, program hostruntime.Program, config string) (
	socket string, pid int, ended <-chan struct{}, write func(string),
) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "config")
	write = func(content string) {
		NewWithT(t).Expect(os.WriteFile(file, []byte(content), 0o600)).To(Succeed())
	}
	write(config)
	socket = filepath.Join(dir, "runtime.sock")
	pid, ended = hostruntimetest.Start(t, program, socket, file)
	return socket, pid, ended, write
}

func nameOf(pid int) string {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(name))
}

func TestARuntimeReadsItsConfigurationAgain(t *testing.T) {
	for _, program := range []hostruntime.Program{hostruntime.Containerd, hostruntime.CRIO, hostruntime.Docker} {
		t.Run(string(program), func(t *testing.T) {
			g := NewWithT(t)
			socket, pid, ended, write := start(t, program, "with nvidia")
			write("without")
			answer, err := program.Ask(socket)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(answer.Config)).To(HaveSuffix("with nvidia"))
			g.Expect(answer.PID).To(Equal(pid), "not the process that listens")
			g.Expect(program.Reload(answer, nameOf)).To(Succeed())
			if program == hostruntime.Containerd {
				g.Eventually(ended, "10s").Should(BeClosed())
				_, err := program.Ask(socket)
				g.Expect(err).To(MatchError(hostruntime.ErrNotRunning))
				return
			}
			g.Eventually(func(g Gomega) {
				answer, err := program.Ask(socket)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(string(answer.Config)).To(Equal("without"))
				g.Expect(answer.PID).To(Equal(pid))
			}, "10s", "10ms").Should(Succeed())
		})
	}
}

func TestAnswersOfContainerd(t *testing.T) {
	for name, test := range map[string]struct{ config, fails string }{
		"it serves no pods":       {config: "status=12"},
		"it is not ready":         {config: "status=14", fails: "it answered with the status 14: played"},
		"another program answers": {fails: "ask containerd for its configuration"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			program := hostruntime.Containerd
			if test.config == "" {
				program = hostruntime.Docker
			}
			socket, _, _, _ := start(t, program, test.config)
			answer, err := hostruntime.Containerd.Ask(socket)
			g.Expect(answer.Config).To(BeEmpty())
			if test.fails == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(ContainSubstring(test.fails)))
		})
	}
	_, err := hostruntime.Docker.Ask(filepath.Join(t.TempDir(), "none.sock"))
	NewWithT(t).Expect(err).To(MatchError(hostruntime.ErrNotRunning))
}

func TestOnlyTheRuntimeIsSignalled(t *testing.T) {
	g := NewWithT(t)
	_, pid, ended, _ := start(t, hostruntime.Containerd, "")
	reload := func(pid int, name string) error {
		return hostruntime.Containerd.Reload(hostruntime.Answer{PID: pid}, func(int) string { return name })
	}
	g.Expect(reload(0, "containerd")).To(MatchError(ContainSubstring("the pod needs hostPID")))
	g.Expect(reload(pid, "systemd")).To(MatchError(ContainSubstring("(systemd)")))
	g.Expect(ended).NotTo(BeClosed())
	g.Expect(syscall.Kill(pid, 0)).To(Succeed())
}
