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

// mountCgroups mounts the hierarchies of cgroup v1 that this machine does not have, in this mount namespace. What is
// refused is printed: a machine whose controllers all belong to cgroup v2 does so. The test then says what is missing.
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
	if err := cover(root, hierarchiesBelow(string(mounts), root)); err != nil {
		fmt.Printf("There is no folder for cgroups: %v\n", err)
		return nil
	}
	for _, controller := range missing {
		target := filepath.Join(root, controller)
		err := os.MkdirAll(target, 0o755)
		if err == nil {
			err = unix.Mount("cgroup", target, "cgroup", 0, controller)
		}
		if err != nil {
			fmt.Printf("The controller %s of cgroup v1 cannot be mounted: %v\n", controller, err)
		}
	}
	return nil
}

// cover mounts an empty file system over a folder, which may be read-only, and whose own file system must not change.
// The mounts in it stay where they are.
func cover(root string, mounts []string) (err error) {
	folders := make([]int, 0, len(mounts))
	defer func() {
		for _, folder := range folders {
			err = errors.Join(err, unix.Close(folder))
		}
	}()
	for _, path := range mounts {
		folder, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open %s: %w", path, err)
		}
		folders = append(folders, folder)
	}
	if err := unix.Mount("tmpfs", root, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount tmpfs: %w", err)
	}
	for i, path := range mounts {
		err := os.MkdirAll(path, 0o755)
		if err == nil {
			err = unix.Mount(fmt.Sprintf("/proc/self/fd/%d", folders[i]), path, "", unix.MS_BIND, "")
		}
		if err != nil {
			return errors.Join(fmt.Errorf("keep %s: %w", path, err), unix.Unmount(root, unix.MNT_DETACH))
		}
	}
	return nil
}

// hierarchiesBelow returns where the hierarchies of cgroups in a folder are mounted.
func hierarchiesBelow(mounts, root string) []string {
	var found []string
	for line := range strings.Lines(mounts) {
		fields := strings.Fields(line)
		if len(fields) > 2 && strings.HasPrefix(fields[2], "cgroup") && strings.HasPrefix(fields[1], root+"/") {
			found = append(found, fields[1])
		}
	}
	return found
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
