//go:build linux

package nvidia

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/clusterpolicy/gpu-operator/test/fakegpu"
)

// testContext is the context of what outlives a test.
func testContext() context.Context { return context.Background() }

// places are the folders of a machine and what they replace.
var places = map[string]string{
	"/proc": "/proc", "/sys/devices": "/sys/devices", pciLinks: pciLinks, "/dev": "/dev", "/run": "/run",
	"/var/lib": "/var/lib", "/etc": "/etc", "/sys/module": "/sys/module",
}

// pciLinks has a link to each PCI device, whose files are below pciRoot.
const (
	pciLinks = "/sys/bus/pci/devices"
	pciRoot  = "/sys/devices/pci0000:00"
)

// kernelProc is where a machine has the kernel's /proc. The machine's own has files that a kernel without modules does
// not have, and links to these.
const kernelProc = "/kernel"

var kernelLinks = []string{
	"self", "thread-self", "mounts", "filesystems", "cpuinfo", "meminfo", "cmdline", "sys", "version",
}

// model is a kind of machine.
type model struct {
	word, device string
	gpus         int
}

var (
	h100 = model{word: "h100", device: "0x2330", gpus: 4}
	t4   = model{word: "t4", device: "0x1eb8", gpus: 1}
)

// migMinors is how many device nodes of MIG a GPU may have: one of each GPU instance, and 8 of its compute instances.
const (
	gpuInstances, computeInstances = 15, 8
	firstMigMinor                  = 3
)

// machine is a computer with GPUs, whose driver is played.
type machine struct {
	t *testing.T
	// dir has its files, and root its driver's.
	dir, root string
	stack     fakegpu.Stack
}

// newMachine makes a machine with the driver loaded.
func newMachine(t *testing.T, of model) *machine {
	t.Helper()
	g := NewWithT(t)
	// A socket's path is at most 107 bytes, too few for the folder of a test.
	dir, err := os.MkdirTemp("", "nvidia-")
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(os.RemoveAll(dir)).To(Succeed()) })
	m := &machine{t: t, dir: dir, root: filepath.Join(dir, "driver")}
	libraries := filepath.Join(m.root, map[string]string{
		"amd64": "usr/lib/x86_64-linux-gnu", "arm64": "usr/lib/aarch64-linux-gnu",
	}[runtime.GOARCH])
	m.stack, err = fakegpu.BuildIn(t.Context(), mkdir(g, dir, "built"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.MkdirAll(filepath.Dir(libraries), 0o755)).To(Succeed())
	g.Expect(os.Rename(m.stack.Lib, libraries)).To(Succeed())
	m.stack.Lib = libraries
	for _, name := range []string{"libcuda.so.", "libnvidia-ml.so."} {
		library := filepath.Join(libraries, name)
		g.Expect(os.Rename(library+"1", library+driverVersion)).To(Succeed())
		g.Expect(os.Symlink(name+driverVersion, library+"1")).To(Succeed())
	}
	m.write("driver/usr/bin/nvidia-smi", "")
	m.beside(fakegpu.Model, of.word)
	m.beside(fakegpu.GPUs, strings.Repeat("gpu ", of.gpus))
	m.writeKernel(g, of)
	return m
}

// driverVersion is that of the played libraries.
const driverVersion = "580.95.05"

func mkdir(g *WithT, elements ...string) string {
	dir := filepath.Join(elements...)
	g.Expect(os.MkdirAll(dir, 0o755)).To(Succeed())
	return dir
}

// beside writes a file beside the driver's libraries.
func (m *machine) beside(name, content string) {
	m.t.Helper()
	NewWithT(m.t).Expect(os.WriteFile(filepath.Join(m.stack.Lib, name), []byte(content), 0o644)).To(Succeed())
}

// write writes a file of the machine.
func (m *machine) write(path, content string) string {
	m.t.Helper()
	g := NewWithT(m.t)
	path = filepath.Join(m.dir, path)
	g.Expect(os.MkdirAll(filepath.Dir(path), 0o755)).To(Succeed())
	g.Expect(os.WriteFile(path, []byte(content), 0o755)).To(Succeed())
	return path
}

// writeKernel writes the files of the kernel's driver and the device nodes.
func (m *machine) writeKernel(g *WithT, of model) {
	m.write("proc/modules", "nvidia_uvm 4096 0 - Live 0x0\nnvidia 4096 1 nvidia_uvm, Live 0x0\n")
	m.write("proc/devices", "Character devices:\n  1 mem\n195 nvidia\n195 nvidiactl\n235 nvidia-caps\n511 nvidia-uvm\n\n"+
		"Block devices:\n")
	mkdir(g, m.dir, kernelProc)
	for _, name := range kernelLinks {
		g.Expect(os.Symlink(filepath.Join(m.dir, kernelProc, name), filepath.Join(m.dir, "proc", name))).To(Succeed())
	}
	m.write("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  "+driverVersion+"\n")
	m.write("sys/module/nvidia/version", driverVersion+"\n")
	m.write("sys/dmi", "DGXH100\n")
	var minors strings.Builder
	fmt.Fprint(&minors, "config 1\nmonitor 2\n")
	nodes := map[string]uint64{
		"null": unix.Mkdev(1, 3), "nvidiactl": unix.Mkdev(195, 255), "nvidia-uvm": unix.Mkdev(511, 0),
		"nvidia-uvm-tools": unix.Mkdev(511, 1), "nvidia-modeset": unix.Mkdev(195, 254),
	}
	minor := firstMigMinor
	for gpu := range of.gpus {
		nodes[fmt.Sprintf("nvidia%d", gpu)] = unix.Mkdev(195, uint32(gpu))
		address := fmt.Sprintf("0000:%02x:00.0", 7+gpu)
		pci := filepath.Join(pciRoot, address)
		for name, content := range map[string]string{
			"vendor": "0x10de\n", "device": of.device + "\n", "class": "0x030200\n", "numa_node": "0\n",
			"resource": "0x0000000000000000 0x0000000000000000 0x0000000000000000\n",
			"config":   string(make([]byte, 256)),
		} {
			m.write(filepath.Join(pci, name), content)
		}
		g.Expect(os.Symlink(filepath.Join("../../../devices", filepath.Base(pciRoot), address),
			filepath.Join(mkdir(g, m.dir, pciLinks), address))).To(Succeed())
		m.write("proc/driver/nvidia/gpus/"+address+"/information",
			fmt.Sprintf("Model: \t\t NVIDIA\nDevice Minor: \t %d\n", gpu))
		for instance := range gpuInstances {
			path := fmt.Sprintf("gpu%d/gi%d", gpu, instance)
			fmt.Fprintf(&minors, "%s/access %d\n", path, minor)
			for compute := range computeInstances {
				fmt.Fprintf(&minors, "%s/ci%d/access %d\n", path, compute, minor+compute+1)
			}
			minor += 1 + computeInstances
		}
	}
	m.write("proc/driver/nvidia-caps/mig-minors", minors.String())
	for minor := range minor {
		nodes[fmt.Sprintf("nvidia-caps/nvidia-cap%d", minor)] = unix.Mkdev(235, uint32(minor))
	}
	mkdir(g, m.dir, "dev", "nvidia-caps")
	for name, number := range nodes {
		g.Expect(unix.Mknod(filepath.Join(m.dir, "dev", name), unix.S_IFCHR|0o666, int(number))).To(Succeed(), name)
	}
	mkdir(g, m.dir, "run", "cdi")
	mkdir(g, m.dir, filepath.Dir(featureFile))
	mkdir(g, m.dir, "var", "lib", "kubelet", "device-plugins")
}

// process is a program of NVIDIA's on a machine.
type process struct {
	*exec.Cmd
	log *log
}

// command prepares a program with arguments and variables. Its standard streams are kept.
func (m *machine) command(ctx context.Context, variables []string, of program, args ...string) *process {
	path := of.standIn
	if path == "" {
		path = filepath.Join(programs, of.name)
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", append([]string{path, of.name}, args...)...)
	cmd.Env = append(m.stack.Environ(machineVariable+"="+m.dir), variables...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	written := &log{}
	cmd.Stdout, cmd.Stderr = written, written
	return &process{Cmd: cmd, log: written}
}

// result is how a program ended, and what it printed.
type result struct {
	Code   int
	Output string
}

// run runs a program to its end.
func (m *machine) run(variables []string, name string, args ...string) result {
	m.t.Helper()
	p := m.command(m.t.Context(), variables, program{name: name}, args...)
	err := p.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		m.t.Fatalf("%s: %v", name, err)
	}
	return result{Code: p.ProcessState.ExitCode(), Output: p.log.String()}
}

// mustRun runs a program that must succeed, and returns what it printed.
func (m *machine) mustRun(variables []string, name string, args ...string) string {
	m.t.Helper()
	got := m.run(variables, name, args...)
	if got.Code != 0 {
		m.t.Fatalf("%s %q: exit code %d\n%s", name, args, got.Code, got.Output)
	}
	return got.Output
}

// knowsAll asserts that no program has called a function of NVML that the library does not have.
func (m *machine) knowsAll() {
	m.t.Helper()
	called, err := os.ReadFile(filepath.Join(m.stack.Lib, fakegpu.Unknown))
	if err == nil || !errors.Is(err, os.ErrNotExist) {
		m.t.Errorf("NVIDIA's programs call functions that libnvidia-ml.so.1 does not have (%v):\n%s", err,
			bytes.TrimSpace(called))
	}
}
