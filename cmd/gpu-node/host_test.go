package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/test/needs"
)

// gpuHost is the root of a node with one GPU and its driver, with its sysfs and procfs, and with real device nodes.
type gpuHost struct{ root string }

// newGPUHost skips the test where it may not change its root or create device nodes.
func newGPUHost(t *testing.T) gpuHost {
	t.Helper()
	g := NewWithT(t)
	host := gpuHost{root: t.TempDir()}
	for path, content := range map[string]string{
		"sys/module/nvidia/version":                        "580.95.05\n",
		"sys/module/nvidia/initstate":                      "live\n",
		"sys/module/nvidia_uvm/initstate":                  "live\n",
		"sys/bus/pci/devices/0000:3b:00.0/vendor":          "0x10de\n",
		"sys/bus/pci/devices/0000:3b:00.0/class":           "0x030200\n",
		"proc/devices":                                     "Character devices:\n195 nvidia\n510 nvidia-uvm\n",
		"proc/driver/nvidia/gpus/0000:3b:00.0/information": "Device Minor: \t 0\nGPU Excluded:\t No\n",
		"dev/char/none":                                    "",
	} {
		host.write(t, path, content)
	}
	g.Expect(os.Symlink("../../../../bus/pci/drivers/nvidia", host.path("sys/bus/pci/devices/0000:3b:00.0/driver"))).
		To(Succeed())
	for name, number := range map[string]int{"nvidia0": 195 << 8, "nvidiactl": 195<<8 | 255, "nvidia-uvm": 510 << 8} {
		if err := syscall.Mknod(host.path("dev", name), syscall.S_IFCHR|0o600, number); err != nil || os.Geteuid() != 0 {
			needs.Unmet(t, needs.Root, fmt.Sprint("makes device nodes: ", err))
		}
	}
	host.install(t, "usr/bin/nvidia-smi")
	return host
}

func (h gpuHost) path(elements ...string) string {
	return filepath.Join(append([]string{h.root}, elements...)...)
}

func (h gpuHost) write(t *testing.T, path, content string) {
	t.Helper()
	NewWithT(t).Expect(os.MkdirAll(filepath.Dir(h.path(path)), 0o700)).To(Succeed())
	NewWithT(t).Expect(os.WriteFile(h.path(path), []byte(content), 0o600)).To(Succeed())
}

// install writes the replacement of nvidia-smi to path.
func (h gpuHost) install(t *testing.T, path string) {
	t.Helper()
	program, err := os.ReadFile(nvidiaSMI)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	h.write(t, path, string(program))
	NewWithT(t).Expect(os.Chmod(h.path(path), 0o755)).To(Succeed())
}

// flags returns the flags of validate driver for this host.
func (h gpuHost) flags(more ...string) []string {
	return append([]string{"validate", "driver", "--host-root=" + h.root, "--driver-root=" + h.path("no-driver-container"),
		"--sys-root=" + h.path("sys"), "--proc-root=" + h.path("proc"), "--dev-char=" + h.path("dev/char")}, more...)
}
