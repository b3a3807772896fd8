//go:build linux

package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// snapshot is the state of what a run may change on a machine: values by names, such as the content of a file of /etc
// by its path.
type snapshot map[string]string

// watched are the folders whose files are compared. The value is whether their content is, too: other programs of the
// machine write to the files of the other folders.
var watched = map[string]bool{"/etc": true, "/run": false, "/var/lib": false, "/dev": false}

// ignored are files of these folders that come and go by themselves: nvidia-modprobe creates the devices of the driver
// when a program first uses CUDA.
var ignored = []string{"/dev/shm", "/dev/pts", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"}

// settings are those of the kernel that a kubelet or a container runtime may change.
var settings = []string{
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys",
	"kernel/keys/root_maxbytes", "net/ipv4/ip_forward", "net/bridge/bridge-nf-call-iptables",
}

// takeSnapshot reads the state of the machine, without bundle and results.
func takeSnapshot(bundle, results string) (snapshot, error) {
	s := snapshot{}
	for dir, content := range watched {
		if err := s.addFiles(dir, content, append([]string{bundle, results}, ignored...)); err != nil {
			return nil, fmt.Errorf("read the state of this machine: %w", err)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, fmt.Errorf("read the state of this machine: %w", err)
	}
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 2 {
			s["mount at "+fields[1]] = fields[0] + ", " + fields[2]
		}
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("read the state of this machine: %w", err)
	}
	for _, i := range interfaces {
		s["network interface "+i.Name] = "exists"
	}
	for _, path := range settings {
		if value, err := os.ReadFile(filepath.Join("/proc/sys", path)); err == nil {
			s["setting "+path] = strings.TrimSpace(string(value))
		}
	}
	if err := errors.Join(s.addProcesses(bundle), s.addNames()); err != nil {
		return nil, fmt.Errorf("read the state of this machine: %w", err)
	}
	return s, nil
}

// addFiles adds the files below a folder. Those that disappear meanwhile are left out.
func (s snapshot) addFiles(dir string, content bool, without []string) error {
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case slices.Contains(without, path) && entry.IsDir():
			return fs.SkipDir
		case slices.Contains(without, path):
			return nil
		}
		s["file "+path] = entry.Type().String()
		if content && entry.Type().IsRegular() {
			text, err := os.ReadFile(path)
			if err == nil {
				s["file "+path] = fmt.Sprintf("%x", sha256.Sum256(text))
			}
		}
		return nil
	})
	return err
}

// addProcesses adds the programs of the bundle that run, this one excepted. A node has them at paths of its own: they
// are compared as files.
func (s snapshot) addProcesses(bundle string) error {
	var programs []os.FileInfo
	err := filepath.WalkDir(bundle, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		programs = append(programs, info)
		return err
	})
	if err != nil {
		return err
	}
	running, err := filepath.Glob("/proc/[0-9]*/exe")
	for _, link := range running {
		pid := filepath.Base(filepath.Dir(link))
		info, err := os.Stat(link)
		if err != nil || pid == fmt.Sprint(os.Getpid()) {
			continue // It has ended.
		}
		if slices.ContainsFunc(programs, func(p os.FileInfo) bool { return os.SameFile(p, info) }) {
			s["process "+pid], _ = os.Readlink(link)
		}
	}
	return err
}

// addNames adds the cgroups and temporary folders that a run makes.
func (s snapshot) addNames() error {
	for _, pattern := range []string{
		"/sys/fs/cgroup/gpu-operator-node-*", "/sys/fs/cgroup/*/gpu-operator-node-*",
		filepath.Join(os.TempDir(), "gpu-operator-node-*"), filepath.Join(os.TempDir(), "gpu-bundle-*"),
	} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		for _, path := range found {
			s["folder "+path] = "exists"
		}
	}
	return nil
}

// isRun reports whether a name is that of a process or folder which only a run has. One that is gone was of a run
// beside this one.
func isRun(name string) bool {
	return strings.HasPrefix(name, "process ") || strings.HasPrefix(name, "folder ")
}

// differences returns in what a later snapshot differs, in the order of the names.
func (s snapshot) differences(later snapshot) []string {
	var found []string
	names := maps.Clone(s)
	maps.Copy(names, later)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		before, was := s[name]
		after, is := later[name]
		switch {
		case !was:
			found = append(found, name+" is new: "+after)
		case !is && isRun(name):
		case !is:
			found = append(found, name+" is gone: "+before)
		case before != after:
			found = append(found, name+" has changed from "+before+" to "+after)
		}
	}
	return found
}
