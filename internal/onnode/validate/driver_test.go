package validate

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
	"github.com/clusterpolicy/gpu-operator/test/needs"
)

var (
	hostDriver = []marker.Assignment{
		{Key: "IS_HOST_DRIVER", Value: "true"},
		{Key: "NVIDIA_DRIVER_ROOT", Value: "/"}, {Key: "DRIVER_ROOT_CTR_PATH", Value: "/host"},
		{Key: "NVIDIA_DEV_ROOT", Value: "/"}, {Key: "DEV_ROOT_CTR_PATH", Value: "/host"},
	}
	containerDriver = []marker.Assignment{
		{Key: "IS_HOST_DRIVER", Value: "false"},
		{Key: "NVIDIA_DRIVER_ROOT", Value: "/run/nvidia/driver"}, {Key: "DRIVER_ROOT_CTR_PATH", Value: "/driver-root"},
		{Key: "NVIDIA_DEV_ROOT", Value: "/run/nvidia/driver"}, {Key: "DEV_ROOT_CTR_PATH", Value: "/driver-root"},
	}
	containerDriverWithoutDev = []marker.Assignment{
		{Key: "IS_HOST_DRIVER", Value: "false"},
		{Key: "NVIDIA_DRIVER_ROOT", Value: "/run/nvidia/driver"}, {Key: "DRIVER_ROOT_CTR_PATH", Value: "/driver-root"},
		{Key: "NVIDIA_DEV_ROOT", Value: "/"}, {Key: "DEV_ROOT_CTR_PATH", Value: "/host"},
	}
)

// Nodes that pass; failures_test.go has those that do not.
func TestDriver(t *testing.T) {
	tests := map[string]struct {
		node  func(*testing.T) gpuNode
		given func(n gpuNode)
		check func(n gpuNode) Driver
		want  []marker.Assignment
		also  []string
	}{
		"takes the host's driver": {node: hostNode, check: gpuNode.driver, want: hostDriver},
		"takes the host's driver from another root": {
			node: hostNode, check: func(n gpuNode) Driver { d := n.driver(); d.RootFS = "/mnt/host"; return d },
			want: []marker.Assignment{
				{Key: "IS_HOST_DRIVER", Value: "true"},
				{Key: "NVIDIA_DRIVER_ROOT", Value: "/mnt/host"}, {Key: "DRIVER_ROOT_CTR_PATH", Value: "/host"},
				{Key: "NVIDIA_DEV_ROOT", Value: "/mnt/host"}, {Key: "DEV_ROOT_CTR_PATH", Value: "/host"},
			}},
		"takes the host's driver from the last directory too": {
			node: hostNode, check: gpuNode.driver, want: hostDriver,
			given: func(n gpuNode) {
				n.remove("host/usr/bin")
				n.smi("host/usr/libexec/nvidia/tesla/bin/nvidia-smi", 0, gpuLine(0), gpuLine(1))
			}},
		"takes the host's driver though a driver container is expected": {
			node: hostNode, check: gpuNode.container, want: hostDriver},
		"ignores an nvidia-smi that is empty": {
			node: hostNode, check: gpuNode.driver, want: hostDriver,
			given: func(n gpuNode) {
				n.smi("host/bin/nvidia-smi", 0, gpuLine(0), gpuLine(1))
				program(n.T, n.path("host/usr/bin/nvidia-smi"), "")
			}},
		"ignores the modules of a driver container that is gone, with a driver on the host": {
			node: hostNode, check: gpuNode.driver, want: hostDriver,
			given: func(n gpuNode) { n.write("markers/.driver-ctr-ready", "GDS_ENABLED: true\n") }},
		"takes the driver container's driver": {node: containerNode, check: gpuNode.container, want: containerDriver},
		"takes the driver container's driver though tools are left on the host": {
			node: containerNode, check: gpuNode.container, want: containerDriver,
			given: func(n gpuNode) { n.smi("host/usr/bin/nvidia-smi", 18, "Failed to initialize NVML") }},
		"takes the host's /dev if the driver's root has none": {
			node: containerNode, check: gpuNode.container, want: containerDriverWithoutDev,
			given: func(n gpuNode) { n.remove("driver/dev"); n.devices("host") }},
		"takes the driver of another program's container": {
			node: containerNode, check: gpuNode.driver, want: containerDriver,
			given: func(n gpuNode) { n.remove("markers/.driver-ctr-ready") }},
		"takes a driver in a directory without a C library": {
			node: containerNode, want: containerDriverWithoutDev,
			given: func(n gpuNode) {
				n.remove("markers/.driver-ctr-ready")
				n.remove("driver")
				n.smi("driver/bin/nvidia-smi", 0, gpuLine(0), gpuLine(1))
				n.devices("host")
			},
			check: func(n gpuNode) Driver {
				d := n.driver()
				d.Run = withoutLibrary(n.path("driver"))
				return d
			}},
		"takes a driver container whose daemons are up": {
			node: containerNode, check: gpuNode.container, want: containerDriver,
			given: func(n gpuNode) { n.write("markers/.driver-daemons-status", "Ready\n") }},
		"validates the further modules of the driver container": {
			node: extrasNode, check: gpuNode.container, want: containerDriver,
			also: []string{"nvidia-fs-ready", "gdrcopy-ready", "nvidia-peermem-ready"}},
		"runs nvidia-modprobe to create what is missing": {
			node: containerNode, check: gpuNode.container, want: containerDriver,
			given: func(n gpuNode) {
				n.remove("driver/dev/nvidia-uvm")
				n.remove("sys/module/nvidia_uvm")
				program(n.T, n.path("driver/usr/bin/nvidia-modprobe"), "#!/bin/sh\n[ \"$*\" = '-u -c=0 -c=1' ] || exit 1\n"+
					"cd "+n.root+" && mkdir sys/module/nvidia_uvm && printf 510:0 >driver/dev/nvidia-uvm\n")
			}},
		"ignores a GPU that is assigned to a virtual machine": {
			node: hostNode, check: gpuNode.driver, want: hostDriver,
			given: func(n gpuNode) { n.pci("0000:60:00.0", "0x10de", "0x030200", "vfio-pci") }},
		"ignores a GPU that the administrator has excluded": {
			node: hostNode, check: gpuNode.driver, want: hostDriver,
			given: func(n gpuNode) {
				n.gpu(2)
				n.write("proc/driver/nvidia/gpus/0000:3d:00.0/information", "Device Minor: \t 2\nGPU Excluded:\t Yes\n")
			}},
		"ignores the virtual functions of a GPU": {
			node: hostNode, check: gpuNode.driver, want: hostDriver,
			given: func(n gpuNode) {
				n.pci("0000:3b:00.4", "0x10de", "0x030200", "nvidia")
				n.symlink("../0000:3b:00.0", "sys/bus/pci/devices/0000:3b:00.4/physfn")
			}},
		"ignores a warning": {
			node: hostNode, check: gpuNode.driver, want: hostDriver,
			given: func(n gpuNode) {
				n.smi("host/usr/bin/nvidia-smi", 0, gpuLine(0), gpuLine(1), "WARNING: something about persistence mode")
			}},
		"takes the driver of Windows": {node: wslNode, check: gpuNode.driver, want: hostDriver},
		"leaves the GPUs alone if configured": {
			node: hostNode, want: hostDriver,
			check: func(n gpuNode) Driver { d := n.driver(); d.SkipGPUInit = true; return d },
			given: func(n gpuNode) {
				n.smi("host/usr/bin/nvidia-smi", 6, "No devices were found")
				n.remove("sys")
				n.remove("proc")
			}},
		"creates no links if configured": {
			node: hostNode, want: hostDriver,
			check: func(n gpuNode) Driver { d := n.driver(); d.DevChar = ""; return d },
			given: func(n gpuNode) { n.remove("host/dev/char") }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			n := tc.node(t)
			if tc.given != nil {
				tc.given(n)
			}
			driver := tc.check(n)
			got, also, err := try(t, driver.Check, driver.Companions(), driver.MarkersDir)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got).To(Equal(tc.want))
			g.Expect(also).To(Equal(tc.also))
		})
	}
}

func TestTheDriverContainersFilesWakeTheRun(t *testing.T) {
	g := NewWithT(t)
	n := extrasNode(t)
	ready, err := os.ReadFile(n.path("markers/.driver-ctr-ready"))
	g.Expect(err).NotTo(HaveOccurred())
	n.remove("markers/.driver-ctr-ready")
	n.write("markers/.driver-daemons-status", "NotReady\n")
	driver := n.container()
	logged := make(lines, 10)
	// With pauses of an hour only the files themselves can wake it.
	run := Run{Component: "driver", Markers: marker.Dir{Path: driver.MarkersDir, BootID: "boot-now"},
		Check: driver.Check, Companions: driver.Companions(),
		Interval: time.Hour, MaxInterval: time.Hour, AttemptTimeout: time.Minute,
		Log: slog.New(slog.NewTextHandler(logged, nil))}
	done := make(chan error, 1)
	began := time.Now().Unix()
	go func() { done <- run.Validate(t.Context()) }()
	g.Eventually(logged, "1m").Should(Receive(ContainSubstring(".driver-ctr-ready is missing")))

	n.write("markers/tmp", string(ready))
	g.Expect(os.Rename(n.path("markers/tmp"), n.path("markers/.driver-ctr-ready"))).To(Succeed())
	g.Eventually(logged, "1m").Should(Receive(ContainSubstring("the daemons of the driver container are not up")))
	n.write("markers/.driver-daemons-status", "Ready\n")

	g.Eventually(done, "1m").Should(Receive(BeNil()))
	content, err := os.ReadFile(n.path("markers/driver-ready"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(content)).To(MatchRegexp(`^IS_HOST_DRIVER=false
NVIDIA_DRIVER_ROOT=/run/nvidia/driver
DRIVER_ROOT_CTR_PATH=/driver-root
NVIDIA_DEV_ROOT=/run/nvidia/driver
DEV_ROOT_CTR_PATH=/driver-root
DRIVER_MODULE=580.95.05
STARTED_AT=[0-9]+
BOOT_ID=boot-now
DRIVER_INSTANCE=pod-1
$`))
	g.Expect(valueOf(g, run.Markers, "driver", "STARTED_AT")).
		To(And(BeNumerically(">=", began), BeNumerically("<=", time.Now().Unix())))
	g.Expect(valueOf(g, run.Markers, "gdrcopy", "STARTED_AT")).To(BeNumerically(">=", began))
}

// lines receives the lines of a log.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

func TestChroot(t *testing.T) {
	g := NewWithT(t)
	out, err := Chroot(t.Context(), "/", "/bin/sh", "-c", "echo $LC_ALL $HOME; exit 15")
	g.Expect(string(out)).To(Equal("C\n"), "only its own environment")
	g.Expect(explain(t.Context(), "nvidia-smi", out, err)).To(MatchError(ContainSubstring("a GPU has fallen off the bus")))

	_, err = Chroot(t.Context(), t.TempDir(), "/usr/bin/nvidia-smi")
	if os.Geteuid() == 0 {
		g.Expect(absent(err)).To(BeTrue(), "the chroot hides this machine: %v", err)
		return
	}
	g.Expect(err).To(MatchError(syscall.EPERM))
	g.Expect(explain(t.Context(), "nvidia-smi", nil, err)).
		To(MatchError(ContainSubstring("the container must be privileged")))
}

// withoutLibrary is a Runner on a node whose driver root has no C library: a program there cannot be executed in a
// chroot, only by this container's loader.
func withoutLibrary(root string) Runner {
	return func(ctx context.Context, in, path string, args ...string) ([]byte, error) {
		switch {
		case in == root:
			return nil, fs.ErrNotExist
		case path == "/lib64/ld-linux-x86-64.so.2" && args[0] == "--library-path" &&
			strings.HasPrefix(args[1], root+"/lib64:"):
			return below(ctx, "/", args[2], args[3:]...)
		}
		return below(ctx, in, path, args...)
	}
}

func TestRunWithLoader(t *testing.T) {
	g := NewWithT(t)
	if !slices.ContainsFunc(loaders, func(path string) bool { return exists(path) }) {
		t.Skip("this machine has no loader of the GNU C library")
	}
	root := t.TempDir()
	path, _, err := runWithLoader(t.Context(), Chroot, root, "-L")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(path).To(BeEmpty(), "there is no program")

	echo, err := os.ReadFile("/bin/echo")
	g.Expect(err).NotTo(HaveOccurred())
	program(t, filepath.Join(root, "bin", smi), string(echo))
	path, out, err := runWithLoader(t.Context(), Chroot, root, "-L", "all")
	g.Expect(err).NotTo(HaveOccurred(), string(out))
	g.Expect(path).To(Equal("/bin/nvidia-smi"))
	g.Expect(string(out)).To(Equal("-L all\n"))

	program(t, filepath.Join(root, "bin", smi), "no program")
	path, out, err = runWithLoader(t.Context(), Chroot, root)
	g.Expect(path).To(Equal("/bin/nvidia-smi"))
	g.Expect(explain(t.Context(), path, out, err)).
		To(MatchError(ContainSubstring("/bin/nvidia-smi fails with exit status")))
}

func TestNumberOf(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	g.Expect(numberOf("/dev/null")).To(Equal(number{1, 3}))
	g.Expect(os.Symlink("/dev/null", filepath.Join(dir, "link"))).To(Succeed())
	g.Expect(numberOf(filepath.Join(dir, "link"))).To(Equal(number{1, 3}))
	_, err := numberOf(dir)
	g.Expect(err).To(MatchError(errNoDevice))
	_, err = numberOf(filepath.Join(dir, "missing"))
	g.Expect(err).To(MatchError(os.ErrNotExist))
	if err := syscall.Mknod(filepath.Join(dir, "nvidia0"), syscall.S_IFCHR|0o600, 195<<8|7); err != nil {
		needs.Unmet(t, needs.Root, fmt.Sprint("creates device nodes: ", err))
	}
	g.Expect(numberOf(filepath.Join(dir, "nvidia0"))).To(Equal(number{195, 7}))
}
