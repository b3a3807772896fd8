package hostruntime_test

import (
	"cmp"
	"context"
	"fmt"
	"net"
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

// A runtime reads its configuration again. The path of a socket has to be short.
func TestReload(t *testing.T) {
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

func TestAnswers(t *testing.T) {
	for name, test := range map[string]struct {
		asked, answers hostruntime.Program
		config, fails  string
	}{
		"no pods":      {config: "status=12"},
		"not ready":    {config: "status=14", fails: "it answered with the status 14: played"},
		"no status":    {config: "status=", fails: "it answered without a status"},
		"ends":         {config: "ends", fails: "ask containerd for its configuration: Post"},
		"another":      {answers: hostruntime.Docker, fails: "ask containerd for its configuration"},
		"another path": {asked: hostruntime.CRIO, answers: hostruntime.Docker, fails: "it answered 404 Not Found"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			socket, _, _, _ := start(t, cmp.Or(test.answers, hostruntime.Containerd), test.config)
			answer, err := cmp.Or(test.asked, hostruntime.Containerd).Ask(socket)
			g.Expect(answer.Config).To(BeEmpty())
			if test.fails == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(ContainSubstring(test.fails)))
			g.Expect(err).NotTo(MatchError(context.DeadlineExceeded))
		})
	}
	g, ended := NewWithT(t), filepath.Join(t.TempDir(), "ended.sock")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: ended})
	g.Expect(err).NotTo(HaveOccurred())
	listener.SetUnlinkOnClose(false)
	g.Expect(listener.Close()).To(Succeed())
	for _, socket := range []string{ended, ended + ".none"} {
		_, err := hostruntime.Docker.Ask(socket)
		g.Expect(err).To(MatchError(hostruntime.ErrNotRunning))
	}
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
	g.Expect(syscall.Kill(pid, syscall.SIGKILL)).To(Succeed())
	g.Eventually(ended, "10s").Should(BeClosed())
	g.Expect(reload(pid, "containerd")).To(MatchError(os.ErrProcessDone))
}

func TestProgramOf(t *testing.T) {
	for socket, want := range map[string]hostruntime.Program{
		"/run/docker.sock": "dockerd", "/var/run/docker/docker.sock": "dockerd", "/run/crio/crio.sock": "crio",
		"/run/containerd/containerd.sock": "containerd", "/run/k3s/containerd/containerd.sock": "containerd",
	} {
		NewWithT(t).Expect(hostruntime.ProgramOf(socket)).To(Equal(want), socket)
	}
}
