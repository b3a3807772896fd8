package validate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
)

// below is the Runner of these tests: it runs programs below root without a chroot, for which tests have no privileges.
// TestChroot tests the real one.
func below(ctx context.Context, root, path string, args ...string) ([]byte, error) {
	return runCommand(exec.CommandContext(ctx, filepath.Join(root, path), args...))
}

// program writes an executable. Meanwhile no other test may fork: its child would have the file open for writing for a
// moment, and such a file cannot be executed.
func program(t *testing.T, path, content string) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	write(t, path, content)
	NewWithT(t).Expect(os.Chmod(path, 0o755)).To(Succeed())
}

// gpuNode is a directory with the file systems of a GPU node: host (the host's root), driver (the driver container's),
// sys, proc, markers, and the host's /dev/char in host/dev/char. A device node is a file with its number, since
// creating a real one needs privileges.
type gpuNode struct {
	*testing.T
	root string
}

func (n gpuNode) path(elements ...string) string {
	return filepath.Join(append([]string{n.root}, elements...)...)
}

func (n gpuNode) write(path, content string) { n.Helper(); write(n.T, n.path(path), content) }

func (n gpuNode) remove(path string) {
	n.Helper()
	NewWithT(n.T).Expect(n.path(path)).To(Or(BeAnExistingFile(), BeADirectory()), "a file that a case removes exists")
	NewWithT(n.T).Expect(os.RemoveAll(n.path(path))).To(Succeed())
}

func (n gpuNode) symlink(target, path string) {
	n.Helper()
	NewWithT(n.T).Expect(os.MkdirAll(filepath.Dir(n.path(path)), 0o700)).To(Succeed())
	NewWithT(n.T).Expect(os.Symlink(target, n.path(path))).To(Succeed())
}

// smi writes the nvidia-smi of a root: it answers the query with these lines and exits with the code.
func (n gpuNode) smi(path string, code int, lines ...string) {
	n.Helper()
	program(n.T, n.path(path), fmt.Sprintf("#!/bin/sh\n"+
		"[ \"$*\" = --version ] && { echo 'NVIDIA-SMI version  : 580.95.05'; exit 0; }\n"+
		"[ \"$*\" = '--query-gpu=index,uuid,driver_version,pci.bus_id --format=csv,noheader' ] || exit 2\n"+
		"cat <<'EOF'\n%s\nEOF\nexit %d\n", strings.Join(lines, "\n"), code))
}

// gpuLine is what nvidia-smi prints for a GPU.
func gpuLine(index int) string {
	return fmt.Sprintf("%d, GPU-6c5b2f0a-0000-4000-8000-00000000000%d, 580.95.05, 00000000:%X:00.0", index, index,
		0x3b+index)
}

// pci adds a device to the bus; it is bound to a driver unless that is empty.
func (n gpuNode) pci(address, vendor, class, driver string) {
	n.Helper()
	dir := "sys/bus/pci/devices/" + address
	n.write(dir+"/vendor", vendor+"\n")
	n.write(dir+"/class", class+"\n")
	if driver != "" {
		n.symlink("../../../../bus/pci/drivers/"+driver, dir+"/driver")
	}
}

// gpu adds a GPU to the bus and to the driver's files.
func (n gpuNode) gpu(index int) {
	n.Helper()
	address := fmt.Sprintf("0000:%x:00.0", 0x3b+index)
	n.pci(address, "0x10de", "0x030200", "nvidia")
	n.write("proc/driver/nvidia/gpus/"+address+"/information", fmt.Sprintf(
		"Model: \t\t NVIDIA H100 80GB HBM3\nBus Location: \t %s\nDevice Minor: \t %d\nGPU Excluded:\t No\n", address, index))
}

// kernel adds the modules of a node with two GPUs.
func (n gpuNode) kernel() {
	n.Helper()
	n.write("sys/module/nvidia/version", "580.95.05\n")
	n.write("sys/module/nvidia/initstate", "live\n")
	n.write("sys/module/nvidia_uvm/initstate", "live\n")
	n.write("proc/devices",
		"Character devices:\n  1 mem\n195 nvidia\n195 nvidiactl\n510 nvidia-uvm\n\nBlock devices:\n510 sd\n")
	n.gpu(0)
	n.gpu(1)
	n.pci("0000:90:00.0", "0x10de", "0x068000", "") // An NVSwitch.
}

// devices creates the device nodes of two GPUs below a root.
func (n gpuNode) devices(root string) {
	n.Helper()
	for name, number := range map[string]string{
		"nvidia0": "195:0", "nvidia1": "195:1", "nvidiactl": "195:255", "nvidia-uvm": "510:0",
		"nvidia-caps/nvidia-cap1": "236:1",
	} {
		n.write(root+"/dev/"+name, number)
	}
}

// fileNumber stands in for numberOf.
func fileNumber(path string) (number, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return number{}, err
	}
	var found number
	if _, err := fmt.Sscanf(string(content), "%d:%d", &found.major, &found.minor); err != nil {
		return number{}, errNoDevice
	}
	return found, nil
}

// hostNode is a healthy node with a driver on the host.
func hostNode(t *testing.T) gpuNode {
	t.Helper()
	n := gpuNode{T: t, root: t.TempDir()}
	n.kernel()
	n.smi("host/usr/bin/nvidia-smi", 0, gpuLine(0), gpuLine(1))
	n.devices("host")
	n.write("host/dev/char/1:3", "1:3")
	return n
}

// containerNode is a healthy node with a driver container.
func containerNode(t *testing.T) gpuNode {
	t.Helper()
	n := gpuNode{T: t, root: t.TempDir()}
	n.kernel()
	n.smi("driver/usr/bin/nvidia-smi", 0, gpuLine(0), gpuLine(1))
	n.devices("driver")
	n.write("host/dev/char/1:3", "1:3")
	n.write("markers/.driver-ctr-ready",
		"GDRCOPY_ENABLED: false\nGDS_ENABLED: false\nGPU_DIRECT_RDMA_ENABLED: false\nDRIVER_INSTANCE: pod-1\n")
	return n
}

// extrasNode is a healthy node whose driver container loads all further modules.
func extrasNode(t *testing.T) gpuNode {
	t.Helper()
	n := containerNode(t)
	n.write("markers/.driver-ctr-ready",
		"GDRCOPY_ENABLED: true\nGDS_ENABLED: true\nGPU_DIRECT_RDMA_ENABLED: true\nDRIVER_INSTANCE: pod-1\n")
	for _, module := range []string{"gdrdrv", "nvidia_fs", "nvidia_peermem"} {
		n.write("sys/module/"+module+"/initstate", "live\n")
	}
	return n
}

// wslNode is a healthy WSL guest.
func wslNode(t *testing.T) gpuNode {
	t.Helper()
	n := gpuNode{T: t, root: t.TempDir()}
	NewWithT(t).Expect(os.MkdirAll(n.path("sys/bus"), 0o700)).To(Succeed())
	n.smi("host/usr/lib/wsl/lib/nvidia-smi", 0, gpuLine(0))
	// Any character device, since creating one needs privileges.
	n.symlink("/dev/null", "host/dev/dxg")
	return n
}

// driver returns the check of this node.
func (n gpuNode) driver() Driver {
	return Driver{
		HostRoot: n.path("host"), DriverRoot: n.path("driver"), InstallDir: "/run/nvidia/driver",
		MarkersDir: n.path("markers"), SysRoot: n.path("sys"), ProcRoot: n.path("proc"), DevChar: n.path("host/dev/char"),
		Run: below, numberOf: fileNumber,
	}
}

// container returns the check of this node where the operator runs the driver container.
func (n gpuNode) container() Driver {
	driver := n.driver()
	driver.ContainerExpected = true
	return driver
}

// try makes one attempt like Run. It returns the assignments of the marker, and the companions.
func try(t *testing.T, check Check, companions []Companion, markers string) ([]marker.Assignment, []string, error) {
	t.Helper()
	dir := marker.Dir{Path: markers, BootID: "boot-now"}
	run := Run{
		Component:  "driver",
		Markers:    dir,
		Check:      check,
		Companions: companions,
		Log:        slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	if err := run.checkAndWrite(t.Context(), run.progress()); err != nil {
		files, globErr := filepath.Glob(filepath.Join(markers, "[a-z]*-ready"))
		if globErr != nil || len(files) > 0 {
			err = errors.Join(err, fmt.Errorf("left behind: %v", files))
		}
		return nil, nil, err
	}
	found, err := dir.Read("driver")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	var written []string
	for _, companion := range companions {
		if _, err := dir.Read(companion.Marker); err == nil {
			written = append(written, companion.Marker.File())
		}
	}
	return found[:5], written, nil
}

// valueOf returns a number in a marker.
func valueOf(g Gomega, markers marker.Dir, m labels.Marker, key string) int64 {
	found, err := markers.Read(m)
	g.Expect(err).NotTo(HaveOccurred())
	at := slices.IndexFunc(found, func(a marker.Assignment) bool { return a.Key == key })
	g.Expect(at).To(BeNumerically(">=", 0), "%s has %s", m, key)
	value, err := strconv.ParseInt(found[at].Value, 10, 64)
	g.Expect(err).NotTo(HaveOccurred())
	return value
}
