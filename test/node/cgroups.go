//go:build linux

package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// hierarchy is one mounted hierarchy of cgroup v1.
type hierarchy struct {
	// path is where it is mounted, options are its mount options, such as cpu,cpuacct or name=systemd.
	path, options string
}

// cgroupHierarchies returns the mounted hierarchies. If one is mounted twice the last mount counts, which is the
// visible one.
func cgroupHierarchies() ([]hierarchy, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, fmt.Errorf("find the cgroups: %w", err)
	}
	var found []hierarchy
	for line := range strings.Lines(string(mounts)) {
		// Device, place, type, options.
		if fields := strings.Fields(line); len(fields) > 3 && fields[2] == "cgroup" {
			found = append(found, hierarchy{path: fields[1], options: controllers(fields[3])})
		}
	}
	return found, nil
}

// controllers returns the mount options that name the hierarchy.
func controllers(options string) string {
	var kept []string
	for option := range strings.SplitSeq(options, ",") {
		switch {
		case strings.HasPrefix(option, "name="):
			kept = append(kept, "none", option)
		case strings.Contains(option, "="), option == "rw", option == "ro", option == "xattr", option == "clone_children",
			option == "nosuid", option == "nodev", option == "noexec", option == "relatime", option == "noatime",
			option == "noprefix":
		default:
			kept = append(kept, option)
		}
	}
	return strings.Join(kept, ",")
}

// makeCgroup creates a cgroup in every hierarchy, with its parents.
func makeCgroup(name string) error {
	hierarchies, err := cgroupHierarchies()
	if err != nil {
		return err
	}
	for _, h := range hierarchies {
		path := h.path
		for part := range strings.SplitSeq(name, "/") {
			parent := path
			path = filepath.Join(path, part)
			if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("make cgroup: %w", err)
			}
			// A new cgroup has no CPUs and no memory nodes, and so accepts no process.
			for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
				if err := inherit(parent, path, file); err != nil {
					return fmt.Errorf("make cgroup: %w", err)
				}
			}
		}
	}
	return nil
}

func inherit(parent, child, file string) error {
	value, err := os.ReadFile(filepath.Join(parent, file))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(child, file), value, 0o644)
}

// joinCgroup moves this process into a cgroup.
func joinCgroup(name string) error {
	hierarchies, err := cgroupHierarchies()
	if err != nil {
		return err
	}
	for _, h := range hierarchies {
		if err := os.WriteFile(filepath.Join(h.path, name, "cgroup.procs"), []byte("0"), 0o644); err != nil {
			return fmt.Errorf("join cgroup: %w", err)
		}
	}
	return nil
}

// cgroupProcesses returns the processes in a cgroup and below it.
func cgroupProcesses(name string) []int {
	var found []int
	hierarchies, _ := cgroupHierarchies()
	for _, h := range hierarchies[:min(1, len(hierarchies))] {
		// Folders disappear while they are walked, with their containers.
		_ = filepath.WalkDir(filepath.Join(h.path, name), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.Name() == "cgroup.procs" {
				pids, _ := os.ReadFile(path)
				found = append(found, numbers(string(pids))...)
			}
			return nil
		})
	}
	return found
}

func numbers(text string) []int {
	var found []int
	for word := range strings.FieldsSeq(text) {
		if number, err := strconv.Atoi(word); err == nil && number > 0 {
			found = append(found, number)
		}
	}
	return found
}

// removeCgroup kills the processes in a cgroup or below it and removes it. It may be missing.
func removeCgroup(name string, within time.Duration) error {
	hierarchies, err := cgroupHierarchies()
	if err != nil {
		return err
	}
	deadline := time.Now().Add(within)
	for _, h := range hierarchies {
		path := filepath.Join(h.path, name)
		// A process that has been killed stays in its cgroup until the kernel is done with it; there is no
		// event for that.
		for err = removeTree(path); err != nil; err = removeTree(path) {
			if time.Now().After(deadline) {
				return fmt.Errorf("remove cgroup %s: %w", path, err)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	return nil
}

func removeTree(path string) error {
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.IsDir() {
			err = errors.Join(err, removeTree(filepath.Join(path, entry.Name())))
		}
	}
	pids, readErr := os.ReadFile(filepath.Join(path, "cgroup.procs"))
	for _, pid := range numbers(string(pids)) {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	if err := errors.Join(err, readErr); err != nil {
		return err
	}
	return unix.Rmdir(path)
}
