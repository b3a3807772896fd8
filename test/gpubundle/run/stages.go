//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// This program is started again for what has to happen in namespaces of its own; the variable names that.
const (
	stageVariable = "GPU_BUNDLE_STAGE"
	// stageProbe tries the mounts that a real node needs.
	stageProbe = "probe"
	// stageCgroups mounts the hierarchies of cgroup v1, unless the machine has them, and becomes another program.
	stageCgroups = "cgroups"
)

func runStage(name string, args []string) error {
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("change the propagation of mounts: %w", err)
	}
	switch name {
	case stageProbe:
		return probe()
	case stageCgroups:
		if err := mountCgroups(); err != nil {
			return err
		}
		if err := os.Unsetenv(stageVariable); err != nil {
			return err
		}
		return syscall.Exec(args[0], args, os.Environ())
	}
	return fmt.Errorf("unknown stage %q", name)
}

// checkNamespaces returns why no real node can run here, as far as namespaces and mounts are concerned.
func checkNamespaces(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return errors.New("a real node needs root")
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	command := exec.CommandContext(ctx, self)
	command.Env = append(os.Environ(), stageVariable+"="+stageProbe)
	command.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS |
			syscall.CLONE_NEWNET,
	}
	var problems bytes.Buffer
	command.Stderr = &problems
	if err := command.Run(); err != nil {
		return fmt.Errorf("a real node needs namespaces and mounts of its own: %w %s", err, problems.Bytes())
	}
	return nil
}

// probe mounts what a container runtime mounts: a file system in memory, and an overlay.
func probe() error {
	dir, err := os.MkdirTemp("", "gpu-bundle-")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(dir) }()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("mount tmpfs: %w", err)
	}
	defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			return err
		}
	}
	options := fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", dir)
	if err := unix.Mount("overlay", filepath.Join(dir, "merged"), "overlay", 0, options); err != nil {
		return fmt.Errorf("mount overlay: %w", err)
	}
	return nil
}

// controllers are those of cgroup v1 that a kubelet and runc require.
var controllers = []string{"cpu", "cpuacct", "cpuset", "devices", "freezer", "memory", "pids"}

// mountCgroups mounts the hierarchies of cgroup v1 that this machine does not have, in this mount namespace. A machine
// whose controllers all belong to cgroup v2 refuses that; the test then says what is missing.
func mountCgroups() error {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return fmt.Errorf("find the cgroups: %w", err)
	}
	missing := slices.DeleteFunc(slices.Clone(controllers), func(controller string) bool {
		return hasController(string(mounts), controller)
	})
	if len(missing) == 0 {
		return nil
	}
	const root = "/sys/fs/cgroup"
	if len(missing) == len(controllers) {
		if err := unix.Mount("tmpfs", root, "tmpfs", 0, "mode=755"); err != nil {
			return fmt.Errorf("mount a folder for cgroups: %w", err)
		}
	}
	for _, controller := range missing {
		target := filepath.Join(root, controller)
		if err := os.MkdirAll(target, 0o755); err != nil {
			return fmt.Errorf("make a folder for cgroups: %w", err)
		}
		if err := unix.Mount("cgroup", target, "cgroup", 0, controller); err != nil {
			fmt.Printf("The controller %s of cgroup v1 cannot be mounted: %v\n", controller, err)
		}
	}
	return nil
}

// hasController reports whether a hierarchy with a controller is mounted.
func hasController(mounts, controller string) bool {
	for line := range strings.Lines(mounts) {
		// Device, place, type, options.
		fields := strings.Fields(line)
		if len(fields) > 3 && fields[2] == "cgroup" && slices.Contains(strings.Split(fields[3], ","), controller) {
			return true
		}
	}
	return false
}
