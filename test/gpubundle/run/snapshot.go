//go:build linux

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// The kinds of what a run may change on a machine.
const (
	kindFile      = "file"
	kindMount     = "mount at"
	kindInterface = "network interface"
	kindSetting   = "setting"
	// Only a run has processes and folders of these kinds.
	kindProcess = "process"
	kindFolder  = "folder"
)

// item is something of a kind, such as a file with its path.
type item struct{ kind, name string }

func (i item) String() string { return i.kind + " " + i.name }

// snapshot is the state of what a run may change on a machine.
type snapshot struct {
	// values are by items, such as the content of a file of /etc.
	values map[item]string
	// unread are the kinds that could not be read, with the reasons.
	unread map[string]string
}

func newSnapshot() snapshot {
	return snapshot{values: map[item]string{}, unread: map[string]string{}}
}

// settings are those of the kernel that a kubelet or a container runtime may change.
var settings = []string{
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys",
	"kernel/keys/root_maxbytes", "net/ipv4/ip_forward", "net/bridge/bridge-nf-call-iptables",
}

// takeSnapshot reads the state of the machine, without bundle and results. What cannot be read is noted in it: a run
// must not depend on that.
func takeSnapshot(bundle, results string) snapshot {
	s := newSnapshot()
	mounts, err := os.ReadFile("/proc/self/mounts")
	s.note(kindMount, err)
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 2 {
			s.values[item{kindMount, unescape(fields[1])}] = fields[0] + ", " + fields[2]
		}
	}
	for _, f := range watched {
		s.addFiles(f, bundle, results)
	}
	interfaces, err := net.Interfaces()
	s.note(kindInterface, err)
	for _, i := range interfaces {
		s.values[item{kindInterface, i.Name}] = "exists"
	}
	for _, path := range settings {
		if value, err := os.ReadFile(filepath.Join("/proc/sys", path)); err == nil {
			s.values[item{kindSetting, path}] = strings.TrimSpace(string(value))
		}
	}
	s.note(kindProcess, s.addProcesses(bundle))
	s.note(kindFolder, s.addFolders(os.TempDir(), "/sys/fs/cgroup"))
	return s
}

// note notes why a kind could not be read, if there is an error.
func (s snapshot) note(kind string, err error) {
	if err != nil {
		s.unread[kind] = err.Error()
	}
}

// unescape returns a path of /proc/self/mounts, in which some characters are written as octal numbers.
func unescape(path string) string {
	for _, code := range []string{`\040`, `\011`, `\012`, `\134`} {
		number, _ := strconv.ParseUint(code[1:], 8, 8)
		path = strings.ReplaceAll(path, code, string(rune(number)))
	}
	return path
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
			s.values[item{kindProcess, pid}], _ = os.Readlink(link)
		}
	}
	return err
}

// addFolders adds the temporary folders and cgroups that a run makes. Those of another run, which goes on, are left
// out: the processes must have been added.
func (s snapshot) addFolders(temporary, cgroups string) error {
	const node = "gpu-operator-node-*"
	for _, pattern := range []string{
		filepath.Join(cgroups, node), filepath.Join(cgroups, "*", node), filepath.Join(temporary, node),
		filepath.Join(temporary, "gpu-bundle-*"),
	} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		for _, path := range found {
			if !s.isOfAnother(filepath.Join(temporary, filepath.Base(path))) {
				s.values[item{kindFolder, path}] = "exists"
			}
		}
	}
	return nil
}

// isOfAnother reports whether the owner of a run's folder is a process that does not belong to the bundle. package node
// writes the owner down.
func (s snapshot) isOfAnother(dir string) bool {
	owner, _ := os.ReadFile(filepath.Join(dir, "owner"))
	pid, _, _ := strings.Cut(string(owner), " ")
	if _, err := strconv.Atoi(pid); err != nil {
		return false
	}
	_, ours := s.values[item{kindProcess, pid}]
	_, err := os.Stat(filepath.Join("/proc", pid))
	return !ours && !errors.Is(err, fs.ErrNotExist)
}

// differences are what distinguishes two snapshots, in the order of the names.
type differences struct {
	// ours may have been left by a run, or could not be compared; others are what a machine changes by itself.
	ours, others []string
}

// compare returns in what a later snapshot differs.
func (s snapshot) compare(later snapshot) differences {
	d := differences{}
	unread := maps.Clone(s.unread)
	maps.Copy(unread, later.unread)
	for _, kind := range slices.Sorted(maps.Keys(unread)) {
		d.ours = append(d.ours, "not compared: each "+kind+": "+unread[kind])
	}
	items := maps.Clone(s.values)
	maps.Copy(items, later.values)
	byName := func(a, b item) int { return cmp.Compare(a.String(), b.String()) }
	for _, i := range slices.SortedFunc(maps.Keys(items), byName) {
		if _, not := unread[i.kind]; not {
			continue
		}
		difference := s.difference(later, i)
		switch {
		case difference == "":
		case s.isOurs(i, items[i]):
			d.ours = append(d.ours, difference)
		default:
			d.others = append(d.others, difference)
		}
	}
	return d
}

// difference returns in what an item of a later snapshot differs; empty if it does not.
func (s snapshot) difference(later snapshot, i item) string {
	before, was := s.values[i]
	after, is := later.values[i]
	switch {
	case !was:
		return i.String() + " is new: " + after
	case !is && (i.kind == kindProcess || i.kind == kindFolder):
		return "" // It was of a run beside this one.
	case !is:
		return i.String() + " is gone: " + before
	case before != after:
		return i.String() + " has changed from " + before + " to " + after
	}
	return ""
}
