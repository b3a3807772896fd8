//go:build linux

package node

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	children "github.com/clusterpolicy/gpu-operator/test/process"
)

//go:embed config
var config embed.FS

const (
	// machineVariable has the description for the first process of a machine.
	machineVariable = "GPU_OPERATOR_NODE_MACHINE"

	containerdSocket = "/run/containerd/containerd.sock"
	// restartWithin is how long the container runtime may take to answer again.
	restartWithin = 30 * time.Second
	// logDir is where the machine's own programs write, as seen in the machine.
	logDir = "/var/log"
)

// Options configure a machine.
type Options struct {
	// Name of the machine and of its Node.
	Name string
	// Binaries is the folder that cluster.EnsureNodeBinaries returned.
	Binaries string
	// StandIn is the program that cluster.BuildNodeStandIn returned.
	StandIn string
	// Kubeconfig is the kubelet's.
	Kubeconfig string
	// GPUs is the number of the machine's GPUs, and Device the PCI device that they are; empty for an H100.
	GPUs   int
	Device string
	// HostDriver is the driver of the machine's own system; nil if it has none.
	HostDriver *HostDriver
}

// Machine is a computer with a kubelet.
type Machine struct {
	options Options
	// dir has the root file system, which outlives a reboot.
	dir    string
	init   *exec.Cmd
	ended  chan struct{}
	cgroup string
	// logged counts the lines of the kernel log.
	logged int
}

// New creates a machine that is switched off, with a new disk, which is kept until the run ends.
func New(o Options) (*Machine, error) {
	dir, err := os.MkdirTemp(Dir(), o.Name+"-")
	if err != nil {
		return nil, fmt.Errorf("make the disk of machine %s: %w", o.Name, err)
	}
	m := &Machine{options: o, dir: dir, cgroup: filepath.Join(filepath.Base(Dir()), o.Name)}
	if err := m.install(); err != nil {
		return nil, fmt.Errorf("install machine %s: %w", o.Name, err)
	}
	return m, nil
}

// Path returns where a path on the machine's disk lies on this computer.
func (m *Machine) Path(path string) string { return filepath.Join(m.dir, "root", path) }

// Running returns where a path of the running machine lies on this computer, what is mounted there included.
func (m *Machine) Running(path string) string {
	return filepath.Join(fmt.Sprintf("/proc/%d/root", m.init.Process.Pid), path)
}

// install fills the disk.
func (m *Machine) install() error {
	kubeconfig, err := os.ReadFile(m.options.Kubeconfig)
	if err != nil {
		return err
	}
	files := map[string][]byte{
		"/etc/kubernetes/kubelet.kubeconfig": kubeconfig,
		"/etc/resolv.conf":                   nil,
		"/etc/hosts":                         []byte("127.0.0.1 localhost\n"),
		"/etc/hostname":                      []byte(m.options.Name + "\n"),
		"/etc/passwd":                        []byte("root:x:0:0:root:/root:/bin/sh\n"),
		"/etc/machine-id":                    []byte(strings.ReplaceAll(newID(), "-", "") + "\n"),
		// The tests rely on the machine's os-release: that of this computer may be of an operating system for
		// which there is no driver.
		"/etc/os-release": []byte("ID=ubuntu\nVERSION_ID=\"24.04\"\nPRETTY_NAME=\"Ubuntu 24.04 LTS\"\n"),
	}
	for from, to := range map[string]string{
		"config/containerd.toml":  "/etc/containerd/config.toml",
		"config/kubelet.yaml":     "/etc/kubernetes/kubelet.yaml",
		"config/network.conflist": "/etc/cni/net.d/10-pods.conflist",
	} {
		if files[to], err = config.ReadFile(from); err != nil {
			return err
		}
	}
	for path, content := range files {
		if err := os.MkdirAll(filepath.Dir(m.Path(path)), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(m.Path(path), content, 0o644); err != nil {
			return err
		}
	}
	return errors.Join(os.MkdirAll(m.Path(logDir), 0o755), m.installStandIn())
}

// PowerOn boots the machine and returns once its container runtime answers. Its earlier mounts and memory are gone; the
// disk is as it was.
func (m *Machine) PowerOn(ctx context.Context) error {
	if err := m.start(); err != nil {
		return fmt.Errorf("boot machine %s: %w", m.options.Name, err)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := m.ctr(ctx, nil, "version")
		if err == nil {
			return nil
		}
		select {
		case <-m.ended:
			return fmt.Errorf("machine %s ended early, %s:\n%s", m.options.Name, m.init.ProcessState, m.Logs())
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("boot machine %s: %w: %w\n%s", m.options.Name, ctx.Err(), err, m.Logs()), m.PowerOff())
		case <-tick.C:
		}
	}
}

func (m *Machine) start() error {
	if err := makeCgroup(m.cgroup); err != nil {
		return err
	}
	described, err := json.Marshal(description{
		Name: m.options.Name, Root: filepath.Join(m.dir, "root"), Binaries: m.options.Binaries,
		Cgroup: m.cgroup, GPUs: m.options.GPUs, Device: cmp.Or(m.options.Device, "2330"), HostDriver: m.options.HostDriver,
	})
	if err != nil {
		return err
	}
	console, err := os.OpenFile(m.Path(logDir+"/console.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer console.Close()
	m.init, m.ended = part(partMachine, Dir()), make(chan struct{})
	m.init.Env = append(m.init.Env, machineVariable+"="+string(described))
	m.init.Stdout, m.init.Stderr = console, console
	m.init.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
	}
	if err := children.Start(m.init); err != nil {
		return err
	}
	go func(cmd *exec.Cmd, ended chan struct{}) {
		_ = cmd.Wait()
		close(ended)
	}(m.init, m.ended)
	return nil
}

// PowerOff ends the machine immediately, like a power loss. It may be off already.
func (m *Machine) PowerOff() error {
	if m.init == nil {
		return nil
	}
	_ = m.init.Process.Kill()
	<-m.ended
	m.init = nil
	return removeCgroup(m.cgroup, endWithin)
}

// Processes returns the numbers, on this computer, of the machine's processes that run a program, named by its path in
// their containers.
func (m *Machine) Processes(program string) []int {
	var found []int
	for _, pid := range cgroupProcesses(m.cgroup) {
		if path, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil && path == program {
			found = append(found, pid)
		}
	}
	return found
}

// Import loads an image, from an archive in the OCI layout, into the container runtime.
func (m *Machine) Import(ctx context.Context, archive io.Reader) error {
	if err := m.ctr(ctx, archive, "images", "import", "--local", "-"); err != nil {
		return fmt.Errorf("import an image on machine %s: %w", m.options.Name, err)
	}
	return nil
}

// Untag removes a name from an image; its containers keep running.
func (m *Machine) Untag(ctx context.Context, name string) error {
	if err := m.ctrOnceUp(ctx, "images", "remove", name); err != nil {
		return fmt.Errorf("remove an image on machine %s: %w", m.options.Name, err)
	}
	return nil
}

// Tag adds a name to an image in the container runtime.
func (m *Machine) Tag(ctx context.Context, name, further string) error {
	if err := m.ctrOnceUp(ctx, "images", "tag", "--force", name, further); err != nil {
		return fmt.Errorf("name an image on machine %s: %w", m.options.Name, err)
	}
	return nil
}

// ctr runs ctr in the namespace of Kubernetes.
func (m *Machine) ctr(ctx context.Context, in io.Reader, args ...string) error {
	args = append([]string{"--address", m.Running(containerdSocket), "--namespace", "k8s.io"}, args...)
	cmd := exec.CommandContext(ctx, filepath.Join(m.options.Binaries, "ctr"), args...)
	cmd.Stdin = in
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ctr %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// ctrOnceUp is ctr for commands that may be repeated: while the container runtime restarts, as the toolkit makes it,
// they are repeated until the runtime has accepted one.
func (m *Machine) ctrOnceUp(ctx context.Context, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, restartWithin)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := m.ctr(ctx, nil, args...)
		if err == nil {
			return nil
		}
		if m.ctr(ctx, nil, "version") == nil {
			// It was up, unless it has come up in between.
			if err = m.ctr(ctx, nil, args...); err == nil {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

// Logs returns the ends of the logs of the machine's own programs.
func (m *Machine) Logs() string {
	const size = 3000
	var logs strings.Builder
	for _, name := range []string{"console", "containerd", "kubelet"} {
		data, err := os.ReadFile(m.Path(filepath.Join(logDir, name+".log")))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		fmt.Fprintf(&logs, "%s.log:\n%s\n", name, data[max(0, len(data)-size):])
	}
	return logs.String()
}
