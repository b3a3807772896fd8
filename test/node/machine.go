//go:build linux

package node

import (
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
	// machineVariable tells the first process of a machine what it is like.
	machineVariable = "GPU_OPERATOR_NODE_MACHINE"

	containerdSocket = "/run/containerd/containerd.sock"
	// restartWithin is how long the container runtime may take to answer again.
	restartWithin = 30 * time.Second
	// logDir is where the machine's own programs write, as seen in the machine.
	logDir = "/var/log"
)

// Options says what a machine is like.
type Options struct {
	// Name is that of the machine and of its Node.
	Name string
	// Binaries is the folder that cluster.EnsureNodeBinaries returned.
	Binaries string
	// StandIn is the program that cluster.BuildNodeStandIn returned.
	StandIn string
	// Kubeconfig is what the kubelet reaches the API server with.
	Kubeconfig string
	// GPUs is how many the machine has.
	GPUs int
}

// Machine is a computer with a kubelet.
type Machine struct {
	options Options
	// dir holds the root file system, which outlives a reboot.
	dir    string
	init   *exec.Cmd
	ended  chan struct{}
	cgroup string
}

// New makes a machine that is switched off, with a new disk, which is kept until the run ends.
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
		// What the tests take for granted is the machine's own: the programs of this computer may be of
		// an operating system for which there is no driver.
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

// PowerOn boots the machine and returns once its container runtime answers. What it has mounted and
// what it had in memory before is gone; the disk is as it was.
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
		Name: m.options.Name, Root: filepath.Join(m.dir, "root"), Binaries: m.options.Binaries, Cgroup: m.cgroup, GPUs: m.options.GPUs,
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

// PowerOff ends the machine at once, as a loss of power does. One that is off stays off.
func (m *Machine) PowerOff() error {
	if m.init == nil {
		return nil
	}
	_ = m.init.Process.Kill()
	<-m.ended
	m.init = nil
	return removeCgroup(m.cgroup, endWithin)
}

// Processes returns the numbers, on this computer, of the machine's processes that run a program, which is
// named as their containers see it.
func (m *Machine) Processes(program string) []int {
	var found []int
	for _, pid := range cgroupProcesses(m.cgroup) {
		if path, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil && path == program {
			found = append(found, pid)
		}
	}
	return found
}

// Import makes an image, as an archive in the OCI layout, known to the container runtime.
func (m *Machine) Import(ctx context.Context, archive io.Reader) error {
	if err := m.ctr(ctx, archive, "images", "import", "--local", "-"); err != nil {
		return fmt.Errorf("import an image on machine %s: %w", m.options.Name, err)
	}
	return nil
}

// Untag takes a name from an image; what runs of it goes on.
func (m *Machine) Untag(ctx context.Context, name string) error {
	if err := m.ctrOnceUp(ctx, "images", "remove", name); err != nil {
		return fmt.Errorf("remove an image on machine %s: %w", m.options.Name, err)
	}
	return nil
}

// Tag gives an image that the container runtime knows a further name.
func (m *Machine) Tag(ctx context.Context, name, further string) error {
	if err := m.ctrOnceUp(ctx, "images", "tag", "--force", name, further); err != nil {
		return fmt.Errorf("name an image on machine %s: %w", m.options.Name, err)
	}
	return nil
}

// ctr talks to the container runtime in the namespace of Kubernetes.
func (m *Machine) ctr(ctx context.Context, in io.Reader, args ...string) error {
	args = append([]string{"--address", m.Running(containerdSocket), "--namespace", "k8s.io"}, args...)
	cmd := exec.CommandContext(ctx, filepath.Join(m.options.Binaries, "ctr"), args...)
	cmd.Stdin = in
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ctr %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// ctrOnceUp is ctr for what may be said twice: while the container runtime restarts, which the toolkit has it do,
// it is said again until the runtime has taken it.
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
			// It was up after all, unless it has come up in between.
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

// Logs returns the ends of what the machine's own programs wrote.
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
