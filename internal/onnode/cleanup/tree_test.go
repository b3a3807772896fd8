package cleanup_test

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/cleanup"
)

// tree is the root of a host.
type tree struct {
	*testing.T
	root string
	// mounts are the lines of this process's mountinfo.
	mounts []string
}

// newTree returns a host with one process and no modules.
func newTree(t *testing.T) *tree {
	t.Helper()
	host := &tree{T: t, root: t.TempDir()}
	host.mount("/", "8:1")
	host.write("proc/modules", "ext4 100 1 - Live 0x0\n")
	host.process("1", "systemd", "22 1 8:1 / / rw - ext4 /dev/sda rw\n")
	return host
}

func (h *tree) path(name string) string { return filepath.Join(h.root, name) }

func (h *tree) write(name, content string) {
	h.Helper()
	g := NewWithT(h.T)
	g.Expect(os.MkdirAll(filepath.Dir(h.path(name)), 0o755)).To(Succeed())
	g.Expect(os.WriteFile(h.path(name), []byte(content), 0o644)).To(Succeed())
}

// replace removes what is at the path, for something else.
func (h *tree) replace(name string) {
	h.Helper()
	NewWithT(h.T).Expect(os.RemoveAll(h.path(name))).To(Succeed())
}

func (h *tree) dir(name string) {
	h.Helper()
	NewWithT(h.T).Expect(os.MkdirAll(h.path(name), 0o755)).To(Succeed())
}

func (h *tree) link(target, name string) {
	h.Helper()
	g := NewWithT(h.T)
	g.Expect(os.MkdirAll(filepath.Dir(h.path(name)), 0o755)).To(Succeed())
	g.Expect(os.Symlink(target, h.path(name))).To(Succeed())
}

// short returns a path that is not too long for a socket, as long as the test runs.
func (h *tree) short(name string) string {
	h.Helper()
	dir, err := os.Open(filepath.Dir(h.path(name)))
	NewWithT(h.T).Expect(err).NotTo(HaveOccurred())
	h.Cleanup(func() { _ = dir.Close() })
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(name))
}

// socket creates a socket, which is served until the test ends or not at all.
func (h *tree) socket(name string, served bool) {
	h.Helper()
	g := NewWithT(h.T)
	g.Expect(os.MkdirAll(filepath.Dir(h.path(name)), 0o755)).To(Succeed())
	h.Chdir(filepath.Dir(h.path(name))) // The path of a socket is limited to some 100 characters.
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Base(name), Net: "unix"})
	g.Expect(err).NotTo(HaveOccurred())
	listener.SetUnlinkOnClose(false)
	if served {
		h.Cleanup(func() { _ = listener.Close() })
		return
	}
	g.Expect(listener.Close()).To(Succeed())
}

// process adds a process of the host, with its mountinfo.
func (h *tree) process(id, name, mounts string) {
	h.Helper()
	h.write("proc/"+id+"/comm", name+"\n")
	h.write("proc/"+id+"/cmdline", name+"\x00")
	h.write("proc/"+id+"/mountinfo", mounts)
}

// served replaces a file by one that is read once: then meanwhile runs, the reader gets the content, and it is gone.
func (h *tree) served(name, content string, meanwhile func()) {
	h.Helper()
	h.replace(name)
	NewWithT(h.T).Expect(syscall.Mkfifo(h.path(name), 0o600)).To(Succeed())
	go func() {
		pipe, err := os.OpenFile(h.path(name), os.O_WRONLY, 0)
		if err != nil {
			return
		}
		meanwhile()
		_ = os.Remove(h.path(name))
		_, _ = pipe.WriteString(content)
		_ = pipe.Close()
	}()
}

// mount mounts a file system at a path of the host.
func (h *tree) mount(at, device string) {
	h.mounts = append(h.mounts, "22 1 "+device+" / "+filepath.Join(h.root, at)+" rw - ext4 /dev/sda rw")
}

func (h *tree) options() cleanup.Options {
	h.Helper()
	file := filepath.Join(h.TempDir(), "mountinfo")
	NewWithT(h.T).Expect(os.WriteFile(file, []byte(strings.Join(h.mounts, "\n")+"\n"), 0o600)).To(Succeed())
	return cleanup.Options{
		HostRoot: h.root, RootFS: "/", DriverInstallDir: "/run/nvidia/driver", ToolkitInstallDir: "/usr/local/nvidia",
		MPSRoot: "/run/nvidia/mps", MountInfo: file,
	}
}

// clean runs the cleanup, which must not fail.
func (h *tree) clean() cleanup.Report {
	h.Helper()
	report, err := cleanup.Run(h.options())
	NewWithT(h.T).Expect(err).NotTo(HaveOccurred())
	return report
}

// files returns all paths of the host but its /proc, with what they are.
func (h *tree) files() map[string]string {
	h.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(h.root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		short := strings.TrimPrefix(strings.TrimPrefix(name, h.root), "/")
		if short == "proc" {
			return fs.SkipDir
		}
		all[short] = entry.Type().String()
		if entry.Type().IsRegular() {
			content, err := os.ReadFile(name)
			all[short] += string(content)
			return err
		}
		if entry.Type()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(name)
			all[short] += target
			return err
		}
		return nil
	})
	NewWithT(h.T).Expect(err).NotTo(HaveOccurred())
	return all
}

// operatingSystem is what every host has, and what is near the files of the stack.
func (h *tree) operatingSystem() {
	h.Helper()
	for _, dir := range []string{"run", "var/lib/kubelet/device-plugins", "usr/local/bin", "opt", "dev/char"} {
		h.dir(dir)
	}
	h.link("/run", "var/run")
	h.write("etc/os-release", "ID=ubuntu\n")
	h.write("etc/containerd/config.toml", "version = 3\nimports = ['/etc/containerd/conf.d/*.toml']\n")
	h.write("var/lib/kubelet/device-plugins/kubelet_internal_checkpoint", "{}")
	h.link("../null", "dev/char/1:3")
	h.write("dev/null", "")
}

// stack is what the stack leaves on a host when it has been killed.
func (h *tree) stack() {
	h.Helper()
	for _, name := range []string{
		"run/nvidia/validations/driver-ready", "run/nvidia/validations/toolkit-ready",
		"run/nvidia/validations/runtime-ready", "run/nvidia/validations/cuda.reason",
		"run/nvidia/validations/cuda.proving", "run/nvidia/validations/.driver-ready.tmp-123",
		"run/nvidia/validations/.driver-ctr-ready", "run/nvidia/validations/.driver-daemons-status",
		"run/nvidia/nvidia-driver.pid", "run/nvidia/nvidia-driver.state", "run/nvidia/toolkit/toolkit.pid",
		"run/nvidia/toolkit/k0s-unused.toml", "run/nvidia-fabricmanager/nv-fabricmanager.pid",
		"etc/kubernetes/node-feature-discovery/features.d/gfd-tmp/gfd-1",
		"run/nvidia/driver/lib/firmware/nvidia/580.1/gsp_ga10x.bin",
		"run/nvidia/mps/.ready", "run/nvidia/mps/nvidia.com/gpu/.started", "run/nvidia/mps/nvidia.com/gpu/log/control.log",
		"run/nvidia/mps/nvidia.com/gpu/pipe/control_lock",
		"usr/local/nvidia/toolkit/nvidia-container-runtime", "usr/local/nvidia/toolkit/nvidia-container-runtime.real",
		"usr/local/nvidia/toolkit/nvidia-ctk", "usr/local/nvidia/toolkit/libnvidia-container.so.1.20.0",
		"usr/local/nvidia/toolkit/.config/nvidia-container-runtime/config.toml",
		"usr/local/nvidia/mig-manager/nvidia-mig-parted", "usr/local/nvidia/mig-manager/config.yaml",
	} {
		h.write(name, "content")
	}
	h.write("run/cdi/management.nvidia.com-gpu.yaml", "cdiVersion: 0.5.0\nkind: management.nvidia.com/gpu\n")
	h.write("run/cdi/k8s.device-plugin.nvidia.com-gpu.json", `{"kind": "k8s.device-plugin.nvidia.com/gpu"}`)
	h.write("etc/containerd/conf.d/99-nvidia.toml", dropIn)
	h.write("etc/kubernetes/node-feature-discovery/features.d/gfd", "nvidia.com/gpu.count=4\n")
	h.dir("run/nvidia/mps/shm")
	for _, dir := range []string{
		"run/nvidia-fabricmanager", "run/nvidia-topologyd", "run/mellanox/drivers/usr/src", "run/containers/oci/hooks.d",
		"dev/log",
	} {
		h.dir(dir)
	}
	h.link("libnvidia-container.so.1.20.0", "usr/local/nvidia/toolkit/libnvidia-container.so.1")
	h.link("../nvidia0", "dev/char/195:0")
	h.link("../nvidia0", "dev/char/.nvidia-195:0")
	h.link("/run/nvidia/driver/dev/nvidia-uvm", "dev/char/511:0")
	h.link("../nvidia-caps/nvidia-cap1", "dev/char/236:1")
	h.socket("var/lib/kubelet/device-plugins/nvidia-gpu.sock", false)
	h.socket("run/nvidia-fabricmanager/socket", false)
}

const dropIn = `version = 3
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia.options]
  BinaryName = "/usr/local/nvidia/toolkit/nvidia-container-runtime"
`
