package main_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"
)

func TestValidateToolkitSaysWhyAtSIGTERM(t *testing.T) {
	g := NewWithT(t)
	pod := newPod(t)
	pod.put(t, "toolkit-ready", "")
	command := pod.command(t, "validate", "toolkit")
	command.Env = []string{"PATH=" + t.TempDir()}
	prover := startUntilLogged(t, command, "not yet")
	g.Expect(prover.Process.Signal(syscall.SIGTERM)).To(Succeed())
	g.Expect(prover.exitCode(t)).To(Equal(1))

	g.Expect(pod.message(t)).To(HavePrefix("toolkit is not validated (terminated signal received): the container runtime has put no nvidia-smi"))
	g.Expect(os.ReadFile(filepath.Join(pod.markers, "toolkit.reason"))).To(BeEquivalentTo(pod.message(t)))
	g.Expect(filepath.Join(pod.markers, "toolkit-ready")).NotTo(BeAnExistingFile(), "the marker of an earlier run")
}

func TestWaitTrustsWhatValidateProved(t *testing.T) {
	g := NewWithT(t)
	pod := newPod(t)
	bin := t.TempDir()
	g.Expect(os.WriteFile(bin+"/nvidia-smi", []byte("#!/bin/sh\necho 'GPU 0: NVIDIA A100'\n"), 0o600)).To(Succeed())
	g.Expect(os.Chmod(bin+"/nvidia-smi", 0o755)).To(Succeed())
	wait := startUntilLogged(t, pod.command(t, "wait", "--for=toolkit"), "waiting for toolkit")
	prover := pod.command(t, "validate", "toolkit")
	prover.Env = []string{"PATH=" + bin}
	g.Expect(prover.Run()).To(Succeed())
	g.Expect(wait.exitCode(t)).To(Equal(0))
}

func TestValidatePluginNamesWhatThePodLacks(t *testing.T) {
	g := NewWithT(t)
	pod := newPod(t)
	command := pod.command(t, "validate", "plugin")
	command.Env = []string{"NODE_NAME=node-a"}
	g.Expect(command.Run()).To(HaveOccurred())
	g.Expect(command.ProcessState.ExitCode()).To(Equal(1))
	g.Expect(pod.message(t)).To(HavePrefix("plugin cannot be validated: KUBERNETES_SERVICE_HOST"))
}

// The host's nvidia-smi is behind an absolute link, as Debian's alternatives are: only a chroot
// follows it to the right file.
func TestValidateDriverRunsNvidiaSMIInTheRootOfTheHost(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs CAP_SYS_CHROOT")
	}
	g := NewWithT(t)
	pod, host := newPod(t), t.TempDir()
	for _, dir := range []string{"/usr/bin", "/etc/alternatives"} {
		g.Expect(os.MkdirAll(host+dir, 0o700)).To(Succeed())
	}
	program, err := os.ReadFile(nvidiaSMI)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.WriteFile(host+"/usr/bin/nvidia-smi-580", program, 0o600)).To(Succeed())
	g.Expect(os.Chmod(host+"/usr/bin/nvidia-smi-580", 0o755)).To(Succeed())
	g.Expect(os.Symlink("/usr/bin/nvidia-smi-580", host+"/etc/alternatives/nvidia-smi")).To(Succeed())
	g.Expect(os.Symlink("/etc/alternatives/nvidia-smi", host+"/usr/bin/nvidia-smi")).To(Succeed())

	g.Expect(os.WriteFile(host+"/exit-code", []byte("15"), 0o600)).To(Succeed())
	g.Expect(pod.command(t, "validate", "driver", "--host-root="+host, "--timeout=100ms").Run()).To(HaveOccurred())
	g.Expect(pod.message(t)).To(Equal("driver is not validated (timeout of 100ms): the host's driver does not work: " +
		"/usr/bin/nvidia-smi fails with exit status 15: a GPU has fallen off the bus; reset the GPU or reboot the node " +
		"(output: \"| NVIDIA-SMI 580.95.05 |\")\n"))

	g.Expect(os.Remove(host + "/exit-code")).To(Succeed())
	g.Expect(pod.command(t, "validate", "driver", "--host-root="+host).Run()).To(Succeed())
	g.Expect(os.ReadFile(pod.markers + "/driver-ready")).To(ContainSubstring("IS_HOST_DRIVER=true\nNVIDIA_DRIVER_ROOT=/\n"))
	g.Expect(filepath.Join(pod.markers, "driver.reason")).NotTo(BeAnExistingFile())
}
