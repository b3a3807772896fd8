package main_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"
)

func TestValidateToolkitReportsWhyAtSIGTERM(t *testing.T) {
	g := NewWithT(t)
	pod := newPod(t)
	pod.put(t, "toolkit-ready", "")
	command := pod.command(t, "validate", "toolkit")
	command.Env = []string{"PATH=" + t.TempDir()}
	validation := startUntilLogged(t, command, "not validated yet")
	g.Expect(validation.Process.Signal(syscall.SIGTERM)).To(Succeed())
	g.Expect(validation.exitCode(t)).To(Equal(1))

	g.Expect(pod.message(t)).To(HavePrefix("toolkit is not validated (terminated signal received): " +
		"the container runtime has injected no nvidia-smi"))
	g.Expect(os.ReadFile(filepath.Join(pod.markers, "toolkit.reason"))).To(BeEquivalentTo(pod.message(t)))
	g.Expect(filepath.Join(pod.markers, "toolkit-ready")).NotTo(BeAnExistingFile(), "the marker of an earlier run")
}

// The kubelet shows the reason, and has room for little more.
func TestValidateFailsWithItsReason(t *testing.T) {
	tests := map[string]struct {
		args []string
		env  string
	}{
		"by the flag":     {args: []string{"--fail-after=100ms"}, env: "FAIL_AFTER=1h"},
		"by the variable": {env: "FAIL_AFTER=100ms"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			pod := newPod(t)
			command := pod.command(t, append([]string{"validate", "toolkit", "--interval=10ms"}, tc.args...)...)
			command.Env = []string{"PATH=" + t.TempDir(), tc.env}
			g.Expect(command.Run()).To(HaveOccurred())
			g.Expect(command.ProcessState.ExitCode()).To(Equal(1))
			g.Expect(pod.message(t)).To(HavePrefix("the container runtime has injected no nvidia-smi into this container"))
		})
	}
}

func TestValidateRefusesInvalidTimes(t *testing.T) {
	for flag, want := range map[string]string{
		"--fail-after=-1s": "--fail-after=-1s is negative", "--interval=0s": "--interval, --max-interval and " +
			"--attempt-timeout must be above 0s",
	} {
		t.Run(flag, func(t *testing.T) {
			g := NewWithT(t)
			command := newPod(t).command(t, "validate", "toolkit", flag)
			out, err := command.CombinedOutput()
			g.Expect(err).To(HaveOccurred())
			g.Expect(command.ProcessState.ExitCode()).To(Equal(2), "wrong usage")
			g.Expect(string(out)).To(ContainSubstring(want))
		})
	}
}

func TestWaitTrustsTheMarkerOfValidate(t *testing.T) {
	g := NewWithT(t)
	pod := newPod(t)
	bin := t.TempDir()
	g.Expect(os.WriteFile(bin+"/nvidia-smi", []byte("#!/bin/sh\necho 'GPU 0: NVIDIA A100 (UUID: GPU-1)'\n"), 0o600)).
		To(Succeed())
	g.Expect(os.Chmod(bin+"/nvidia-smi", 0o755)).To(Succeed())
	wait := startUntilLogged(t, pod.command(t, "wait", "--for=toolkit"), "waiting for toolkit")
	validation := pod.command(t, "validate", "toolkit", "--timeout=10s")
	validation.Env = []string{"PATH=" + bin}
	g.Expect(validation.Run()).To(Succeed())
	g.Expect(wait.exitCode(t)).To(Equal(0))
}

// The operator finds in the pod's status which driver the pod has validated.
func TestValidateNamesTheDriverInItsMessage(t *testing.T) {
	for want, container := range map[string]string{
		"validated for driver instance pod-1\n": "DRIVER_INSTANCE: pod-1\n",
		"validated for driver instance none\n":  "",
	} {
		t.Run(want, func(t *testing.T) {
			g := NewWithT(t)
			pod, bin := newPod(t), t.TempDir()
			if container != "" {
				pod.put(t, ".driver-ctr-ready", container)
			}
			g.Expect(os.WriteFile(bin+"/nvidia-smi", []byte("#!/bin/sh\necho 'GPU 0: NVIDIA A100 (UUID: GPU-1)'\n"), 0o600)).
				To(Succeed())
			g.Expect(os.Chmod(bin+"/nvidia-smi", 0o755)).To(Succeed())
			validation := pod.command(t, "validate", "toolkit", "--timeout=10s")
			validation.Env = []string{"PATH=" + bin}
			g.Expect(validation.Run()).To(Succeed())
			g.Expect(pod.message(t)).To(Equal(want))
		})
	}
}

func TestValidatePluginNamesWhatThePodIsMissing(t *testing.T) {
	g := NewWithT(t)
	pod := newPod(t)
	command := pod.command(t, "validate", "plugin")
	command.Env = []string{"NODE_NAME=node-a"}
	g.Expect(command.Run()).To(HaveOccurred())
	g.Expect(command.ProcessState.ExitCode()).To(Equal(1))
	g.Expect(pod.message(t)).To(HavePrefix("plugin cannot be validated: KUBERNETES_SERVICE_HOST"))
}

// The host's nvidia-smi is behind an absolute link, like Debian's alternatives: only in a chroot does it lead to the
// right file.
func TestValidateDriverRunsNvidiaSMIInTheRootOfTheHost(t *testing.T) {
	g := NewWithT(t)
	pod, host := newPod(t), newGPUHost(t)
	g.Expect(os.Rename(host.path("usr/bin/nvidia-smi"), host.path("usr/bin/nvidia-smi-580"))).To(Succeed())
	g.Expect(os.MkdirAll(host.path("etc/alternatives"), 0o700)).To(Succeed())
	g.Expect(os.Symlink("/usr/bin/nvidia-smi-580", host.path("etc/alternatives/nvidia-smi"))).To(Succeed())
	g.Expect(os.Symlink("/etc/alternatives/nvidia-smi", host.path("usr/bin/nvidia-smi"))).To(Succeed())

	host.write(t, "exit-code", "15")
	g.Expect(pod.command(t, host.flags("--timeout=3s")...).Run()).To(HaveOccurred())
	g.Expect(pod.message(t)).To(Equal("driver is not validated (timeout of 3s): the host's driver does not work: " +
		"/usr/bin/nvidia-smi fails with exit status 15: a GPU has fallen off the bus; reset the GPU or reboot the node " +
		"(output: \"0, GPU-6c5b2f0a-0000-4000-8000-000000000000, 580.95.05, 00000000:3B:00.0\")\n"))

	g.Expect(os.Remove(host.path("exit-code"))).To(Succeed())
	g.Expect(pod.command(t, host.flags("--timeout=10s")...).Run()).To(Succeed())
	g.Expect(os.ReadFile(pod.markers + "/driver-ready")).
		To(ContainSubstring("IS_HOST_DRIVER=true\nNVIDIA_DRIVER_ROOT=/\n"))
	g.Expect(filepath.Join(pod.markers, "driver.reason")).NotTo(BeAnExistingFile())
	g.Expect(os.Readlink(host.path("dev/char/195:0"))).To(Equal("../nvidia0"))
	g.Expect(os.Readlink(host.path("dev/char/510:0"))).To(Equal("../nvidia-uvm"))
}

// The variables that users set in spec.validator.driver.env.
func TestValidateDriverUsesTheVariablesOfNVIDIAsValidator(t *testing.T) {
	tests := map[string]struct {
		env   []string
		flags []string
		given func(t *testing.T, host gpuHost)
		links bool
		err   string
	}{
		"no links": {env: []string{"DISABLE_DEV_CHAR_SYMLINK_CREATION=true"}},
		"the flag wins": {
			env: []string{"DISABLE_DEV_CHAR_SYMLINK_CREATION=true"}, flags: []string{"--no-dev-char-links=false"}, links: true},
		"an empty variable is none": {env: []string{"DISABLE_DEV_CHAR_SYMLINK_CREATION="}, links: true},
		"no GPUs": {
			env: []string{"DRIVER_VALIDATION_SKIP_GPU_INIT=true"}, links: true,
			given: func(t *testing.T, host gpuHost) {
				t.Helper()
				NewWithT(t).Expect(os.RemoveAll(host.path("sys"))).To(Succeed())
			}},
		"a variable that is no boolean": {
			env: []string{"DRIVER_VALIDATION_SKIP_GPU_INIT=sure"},
			err: `the environment variable DRIVER_VALIDATION_SKIP_GPU_INIT: `},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			pod, host := newPod(t), newGPUHost(t)
			if tc.given != nil {
				tc.given(t, host)
			}
			command := pod.command(t, host.flags(append(tc.flags, "--timeout=10s")...)...)
			command.Env = append(os.Environ(), tc.env...)
			out, err := command.CombinedOutput()
			if tc.err != "" {
				g.Expect(command.ProcessState.ExitCode()).To(Equal(2), "wrong usage")
				g.Expect(string(out)).To(ContainSubstring(tc.err))
				return
			}
			g.Expect(err).NotTo(HaveOccurred(), string(out))
			_, err = os.Lstat(host.path("dev/char/195:0"))
			g.Expect(err == nil).To(Equal(tc.links))
		})
	}
}

func TestValidateMOFED(t *testing.T) {
	tests := map[string]struct {
		env  []string
		err  string
		logs string
	}{
		"not enabled": {logs: "GPUDirect RDMA is not enabled"},
		"by the host": {
			env: []string{"GPU_DIRECT_RDMA_ENABLED=true", "USE_HOST_MOFED=true"},
			err: "the kernel module mlx5_core is not loaded",
		},
		"by the other pod": {
			env: []string{"GPU_DIRECT_RDMA_ENABLED=true"},
			err: "the Mellanox driver on this node is not ready",
		},
		"a wrong variable": {env: []string{"USE_HOST_MOFED=2"}, logs: "the environment variable USE_HOST_MOFED: "},
		"a wrong value too": {
			env:  []string{"GPU_DIRECT_RDMA_ENABLED=yes"},
			logs: "the environment variable GPU_DIRECT_RDMA_ENABLED: ",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			pod, sys := newPod(t), gpuHost{root: t.TempDir()}
			sys.write(t, "bus/pci/devices/0000:a0:00.0/vendor", "0x15b3\n")
			sys.write(t, "bus/pci/devices/0000:a0:00.0/class", "0x020000\n")
			command := pod.command(t, "validate", "mofed", "--sys-root="+sys.root, "--mofed-ready-file="+sys.path("ready"),
				"--timeout=100ms")
			command.Env = tc.env
			out, _ := command.CombinedOutput()
			g.Expect(string(out)).To(ContainSubstring(tc.logs))
			g.Expect(pod.message(t)).To(ContainSubstring(tc.err))
		})
	}
}

func TestValidateAModule(t *testing.T) {
	for component, module := range map[string]string{
		"nvidia-fs": "nvidia_fs", "gdrcopy": "gdrdrv", "nvidia-peermem": "nvidia_peermem",
	} {
		t.Run(component, func(t *testing.T) {
			g := NewWithT(t)
			pod, sys := newPod(t), gpuHost{root: t.TempDir()}
			validation := startUntilLogged(t, pod.command(t, "validate", component, "--sys-root="+sys.root, "--interval=10ms"),
				"the kernel module "+module+" is not loaded")
			sys.write(t, "module/"+module+"/initstate", "live\n")
			g.Expect(validation.exitCode(t)).To(Equal(0))
			g.Expect(filepath.Join(pod.markers, component+"-ready")).To(BeAnExistingFile())
		})
	}
}
