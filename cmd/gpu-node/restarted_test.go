package main_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/test/needs"
)

// The toolkit is ready once the container runtime has restarted: after gpu-node has started the toolkit, and within
// --patience. This test is the runtime before.
func TestTheProbeOfTheToolkit(t *testing.T) {
	g := NewWithT(t)
	pod, dir := newPod(t), t.TempDir()
	socket, started := filepath.Join(dir, "containerd.sock"), filepath.Join(dir, "started")
	probe := func(flags ...string) (code int, output string) {
		args := []string{"restarted", "--socket=" + socket, "--started-file=" + started, "--dir=" + pod.markers}
		command := exec.CommandContext(t.Context(), gpuNode, append(args, flags...)...)
		out, _ := command.CombinedOutput()
		return command.ProcessState.ExitCode(), string(out)
	}
	fails := func(why string, flags ...string) {
		t.Helper()
		code, output := probe(flags...)
		g.Expect(code).To(Equal(1))
		g.Expect(output).To(ContainSubstring(why))
	}
	listener, err := net.Listen("unix", socket)
	g.Expect(err).NotTo(HaveOccurred())
	fails("the toolkit has not been started yet")

	pod.put(t, "driver-ready", "")
	g.Expect(pod.command(t, "exec", "--started-file="+started, "--", "true").Run()).To(Succeed())
	fails("has not restarted yet", "--within=300ms")

	g.Expect(listener.Close()).To(Succeed())
	fails("no process accepts connections")
	g.Expect(filepath.Join(pod.markers, "runtime-ready")).NotTo(BeAnExistingFile())
	code, output := probe("--patience=1ns")
	g.Expect(code).To(Equal(0), "a runtime that needs no restart: %s", output)
	g.Expect(pod.command(t, "wait", "--for=runtime", "--timeout=10s").Run()).To(Succeed(), "the marker can be trusted")
}

// The toolkit would end where it takes itself for the container runtime, and its container would be restarted.
func TestAToolkitDoesNotHangUpItself(t *testing.T) {
	if os.Geteuid() != 0 {
		needs.Unmet(t, needs.Root, "sets a filter of system calls")
	}
	pod, started := newPod(t), filepath.Join(t.TempDir(), "started")
	pod.put(t, "driver-ready", "")
	for _, test := range []struct {
		script, want string
		flags        []string
	}{
		{"kill -HUP 0", "", []string{"--started-file=" + started}},
		{"kill -HUP $$", "sent\n", []string{"--started-file=" + started}},
		{"kill -CONT 0", "sent\n", []string{"--started-file=" + started}},
		{"kill -HUP 0", "sent\n", nil},
	} {
		g := NewWithT(t)
		command := pod.command(t, append(append([]string{"exec"}, test.flags...), "--",
			"sh", "-c", "trap '' HUP; "+test.script+" && echo sent; true")...)
		// The signal is for no other process.
		command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		out, err := command.Output()
		g.Expect(err).NotTo(HaveOccurred(), "%s", out)
		g.Expect(string(out)).To(Equal(test.want), test.script)
	}
}

func TestAStartThatCannotBeWritten(t *testing.T) {
	g := NewWithT(t)
	pod := newPod(t)
	pod.put(t, "driver-ready", "")
	g.Expect(pod.command(t, "exec", "--started-file=/proc/no/such/directory", "--", "true").Run()).To(HaveOccurred())
	g.Expect(pod.message(t)).To(HavePrefix("write the start of true: "))
}

func TestWaitCopiesTheProgramFirst(t *testing.T) {
	g := NewWithT(t)
	pod, dir := newPod(t), t.TempDir()
	program := startUntilLogged(t, pod.command(t, "wait", "--for=driver", "--copy-to="+dir), "waiting for driver")
	g.Expect(filepath.Join(dir, "gpu-node")).To(BeARegularFile())
	pod.put(t, "driver-ready", "")
	g.Expect(program.exitCode(t)).To(Equal(0))
	g.Expect(exec.CommandContext(t.Context(), filepath.Join(dir, "gpu-node"), "--help").Run()).To(Succeed())
}

func TestACopyThatFails(t *testing.T) {
	for _, args := range [][]string{{"wait", "--for=driver"}, {"validate", "driver"}} {
		t.Run(args[0], func(t *testing.T) {
			g := NewWithT(t)
			pod := newPod(t)
			g.Expect(pod.command(t, append(args, "--copy-to=/proc/none")...).Run()).To(HaveOccurred())
			g.Expect(pod.message(t)).To(ContainSubstring("/proc/none"))
		})
	}
}

// Containers with injected GPUs wait for the runtime, too, if the driver's marker states that it restarts.
func TestWaitForTheRuntime(t *testing.T) {
	g := NewWithT(t)
	pod := newPod(t)
	pod.put(t, "driver-ready", "RUNTIME_FOLLOWS=true\n")
	g.Expect(pod.command(t, "wait", "--for=driver").Run()).To(Succeed(), "nothing is injected")
	program := startUntilLogged(t, pod.command(t, "wait", "--for=driver", "--injected"), "runtime-ready is missing")
	pod.put(t, "runtime-ready", "")
	g.Expect(program.exitCode(t)).To(Equal(0))

	pod = newPod(t)
	pod.put(t, "driver-ready", "")
	g.Expect(pod.command(t, "wait", "--for=driver", "--injected").Run()).To(Succeed(), "the runtime is not restarted")
}

// Validating a driver whose toolkit follows removes the marker of the runtime until that has restarted.
func TestTheRuntimeFollowsTheDriver(t *testing.T) {
	g := NewWithT(t)
	pod, host := newPod(t), newGPUHost(t)
	pod.put(t, "runtime-ready", "")
	out, err := pod.command(t, host.flags("--runtime-follows")...).CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred(), "%s", out)
	g.Expect(filepath.Join(pod.markers, "runtime-ready")).NotTo(BeAnExistingFile())
	content, err := os.ReadFile(filepath.Join(pod.markers, "driver-ready"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(content)).To(ContainSubstring("RUNTIME_FOLLOWS=true\n"))
	command := pod.command(t, "exec", "--sys-root="+host.path("sys"), "--", "sh", "-c", `echo "[$RUNTIME_FOLLOWS]"`)
	g.Expect(command.Output()).To(BeEquivalentTo("[]\n"), "the toolkit does not need it")
}
