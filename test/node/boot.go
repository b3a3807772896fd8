//go:build linux

package node

import (
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clusterpolicy/gpu-operator/test/process"
)

// description is the configuration of the first process of a machine.
type description struct {
	Name, Root, Binaries, Cgroup string
	GPUs                         int
	Device                       string
	HostDriver                   *HostDriver
	// Joined is set once the process is in its cgroup.
	Joined bool
}

// programDir is where the machine has the programs of the node.
const programDir = "/opt/node/bin"

// boot is the first process of a machine. It returns only if it fails.
func boot() error {
	var machine description
	if err := json.Unmarshal([]byte(os.Getenv(machineVariable)), &machine); err != nil {
		return fmt.Errorf("read what the machine is like: %w", err)
	}
	if !machine.Joined {
		return fmt.Errorf("enter the machine's cgroup: %w", machine.join())
	}
	if err := machine.mount(); err != nil {
		return fmt.Errorf("mount the machine's file systems: %w", err)
	}
	if err := machine.HostDriver.load(); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(machine.Name)); err != nil {
		return fmt.Errorf("name the machine: %w", err)
	}
	return machine.supervise()
}

// join enters the machine's cgroup, makes that the root of the cgroups that the machine sees, and starts this program
// again: only one thread enters a namespace, and a new program has only one.
func (d description) join() error {
	if err := joinCgroup(d.Cgroup); err != nil {
		return err
	}
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return err
	}
	// The program is executed by this thread, which may not be the one that was bound when the process started.
	if err := process.BindSelf(); err != nil {
		return err
	}
	d.Joined = true
	described, err := json.Marshal(d)
	if err != nil {
		return err
	}
	if err := os.Setenv(machineVariable, string(described)); err != nil {
		return err
	}
	return syscall.Exec("/proc/self/exe", os.Args, os.Environ())
}

// service is a program that the machine keeps running.
type service struct {
	name    string
	args    []string
	process *os.Process
	started time.Time
}

// restartPause limits how often a service that ends immediately is restarted.
const restartPause = 500 * time.Millisecond

// supervise runs the machine's services and restarts those that end, like an init system. Processes that lose their
// parent become children of the first one, which must wait for them.
func (d description) supervise() error {
	services := []*service{
		{name: "containerd", args: []string{"--config=/etc/containerd/config.toml"}},
		{name: "kubelet", args: []string{
			"--config=/etc/kubernetes/kubelet.yaml",
			"--kubeconfig=/etc/kubernetes/kubelet.kubeconfig",
			"--hostname-override=" + d.Name,
			"--node-ip=" + Address.String(),
		}},
	}
	// Services must not inherit that SIGHUP is ignored, as below nohup: the toolkit ends containerd by it. A signal that
	// this process handles has its default action in the programs that it starts.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	for _, s := range services {
		if err := s.start(); err != nil {
			return err
		}
	}
	for {
		pid, err := unix.Wait4(-1, nil, 0, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("wait for processes: %w", err)
		}
		for _, s := range services {
			if s.process.Pid != pid {
				continue
			}
			time.Sleep(max(0, restartPause-time.Since(s.started)))
			if err := s.start(); err != nil {
				return err
			}
		}
	}
}

func (s *service) start() error {
	log, err := os.OpenFile(filepath.Join(logDir, s.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	path := filepath.Join(programDir, s.name)
	// Without a parent-death signal: with the first process the kernel ends all.
	s.process, err = os.StartProcess(path, append([]string{path}, s.args...), &os.ProcAttr{
		Dir: "/",
		Env: []string{
			"PATH=" + machineDir + ":" + programDir + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		},
		// No input.
		Files: []*os.File{nil, log, log},
	})
	if err != nil {
		return fmt.Errorf("start %s: %w", s.name, err)
	}
	s.started = time.Now()
	fmt.Printf("%s started %s as process %d\n", s.started.Format(time.RFC3339Nano), s.name, s.process.Pid)
	return nil
}
