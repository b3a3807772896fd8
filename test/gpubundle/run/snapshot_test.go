//go:build linux

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"
)

func TestDifferences(t *testing.T) {
	g := NewWithT(t)
	before, after := newSnapshot(), newSnapshot()
	before.values = map[item]string{
		{kindFile, "/etc/a"}: "1", {kindFile, "/etc/b"}: "2", {kindMount, "/"}: "ext4", {kindProcess, "1"}: "of another run",
	}
	g.Expect(before.compare(before)).To(Equal(differences{}))
	after.values = map[item]string{
		{kindFile, "/etc/a"}: "3", {kindMount, "/"}: "ext4", {kindFolder, "/tmp/c"}: "exists",
	}
	g.Expect(before.compare(after)).To(Equal(differences{ours: []string{
		"file /etc/a has changed from 1 to 3", "file /etc/b is gone: 2", "folder /tmp/c is new: exists",
	}}))
	after.note(kindFile, errors.New("too many links"))
	g.Expect(before.compare(after)).To(Equal(differences{ours: []string{
		"not compared: each file: too many links", "folder /tmp/c is new: exists",
	}}))
}

// What other programs of a machine change while a run goes on is not what the run has left.
func TestDifferencesOfOthers(t *testing.T) {
	before := newSnapshot()
	before.values[item{kindFile, "/var/lib/kubelet"}] = "d---------"
	tests := map[item]bool{
		{kindFile, "/etc/resolv.conf"}:             true,
		{kindFile, "/run/nvidia/validations"}:      true,
		{kindFile, "/run/nvidia-persistenced/pid"}: false,
		{kindFile, "/run/cdi"}:                     true,
		{kindFile, "/run/user/1000"}:               false,
		{kindFile, "/var/lib/containerd"}:          true,
		{kindFile, "/var/lib/kubelet/pods"}:        false, // The machine has a kubelet.
		{kindMount, "/var/lib/kubelet/pods/a"}:     false,
		{kindMount, "/run/netns/cni-1"}:            true, // It has no network namespaces.
		{kindFile, "/var/lib/apt/lists"}:           false,
		{kindMount, "/var/lib/docker/overlay2/a"}:  false,
		{kindMount, "/sys/fs/cgroup"}:              true,
		{kindFile, "/dev/nvidia0"}:                 true,
		{kindFile, "/dev/nvidiactl"}:               true,
		{kindFile, "/dev/nvidia-uvm"}:              false,
		{kindFile, "/dev/nvidia-caps/nvidia-cap1"}: false,
		{kindFile, "/dev/char/195:0"}:              true, // It leads to nvidia0.
		{kindFile, "/dev/loop7"}:                   false,
		{kindInterface, "cni0"}:                    true,
		{kindFolder, "/tmp/gpu-operator-node-1"}:   true,
		{kindSetting, "kernel/panic"}:              true,
		{kindProcess, "17"}:                        true,
	}
	for changed, ours := range tests {
		t.Run(changed.String(), func(t *testing.T) {
			g := NewWithT(t)
			after := newSnapshot()
			maps.Copy(after.values, before.values)
			after.values[changed] = "exists"
			if strings.HasPrefix(changed.name, "/dev/char") {
				after.values[changed] = "../nvidia0"
			}
			line := []string{changed.String() + " is new: " + after.values[changed]}
			if ours {
				g.Expect(before.compare(after)).To(Equal(differences{ours: line}))
			} else {
				g.Expect(before.compare(after)).To(Equal(differences{others: line}))
			}
		})
	}
}

func TestSnapshotOfFiles(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	write := func(name, text string) {
		g.Expect(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700)).To(Succeed())
		g.Expect(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)).To(Succeed())
	}
	taken := func(content bool) snapshot {
		s := newSnapshot()
		s.addFiles(folder{path: dir, content: content}, filepath.Join(dir, "results"))
		return s
	}
	write("a", "1")
	write("results/summary", "1")
	names, contents := taken(false), taken(true)
	g.Expect(names.values).To(HaveLen(2), "the folder and one file")
	write("a", "2")
	write("results/further", "1")
	g.Expect(names.compare(taken(false))).To(Equal(differences{}))
	g.Expect(contents.compare(taken(true)).ours).
		To(ConsistOf(HavePrefix("file " + filepath.Join(dir, "a") + " has changed")))
	write("b", "1")
	g.Expect(names.compare(taken(false)).ours).
		To(ConsistOf(HavePrefix("file " + filepath.Join(dir, "b") + " is new")))
}

// The folders of a machine may have millions of files, other file systems, and files that even root cannot read. None
// of that ends a snapshot, or makes it take long.
func TestSnapshotOfAForeignMachine(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	for _, path := range []string{"ours/a/b/c", "mounted/a", "other/a/b"} {
		g.Expect(os.MkdirAll(filepath.Join(dir, path), 0o700)).To(Succeed())
	}
	s := newSnapshot()
	s.values[item{kindMount, filepath.Join(dir, "mounted")}] = "fuse"
	f := folder{path: dir, ours: regexp.MustCompile("^ours(/|$)")}
	s.addFiles(f)
	var found []string
	for i := range s.values {
		if relative, _ := filepath.Rel(dir, i.name); i.kind == kindFile {
			found = append(found, relative)
		}
	}
	g.Expect(found).To(ConsistOf(".", "ours", "ours/a", "ours/a/b", "ours/a/b/c", "mounted", "other", "other/a"))
	refused := filepath.Join(dir, "other")
	entries, err := os.ReadDir(dir)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(s.addFile(f, refused, entries[1], syscall.EACCES)).To(Equal(fs.SkipDir))
	g.Expect(s.values).To(HaveKeyWithValue(item{kindFile, refused}, unreadable))
	g.Expect(s.addFile(f, filepath.Join(dir, "root"), nil, syscall.ENOTCONN)).To(Succeed())
	g.Expect(s.addFile(f, filepath.Join(dir, "gone"), nil, fs.ErrNotExist)).To(Succeed())
	g.Expect(s.values).NotTo(HaveKey(item{kindFile, filepath.Join(dir, "gone")}))
	g.Expect(s.unread).To(BeEmpty())
}

func TestUnescape(t *testing.T) {
	g := NewWithT(t)
	g.Expect(unescape(`/media/a\040b\134c`)).To(Equal(`/media/a b\c`))
}

// A folder whose owner is a running process of something else belongs to another run.
func TestFoldersOfOtherRuns(t *testing.T) {
	g := NewWithT(t)
	temporary, cgroups := t.TempDir(), t.TempDir()
	// No process has the number 0.
	for name, owner := range map[string]string{"another": fmt.Sprint(os.Getpid()), "ended": "0"} {
		dir := filepath.Join(temporary, "gpu-operator-node-"+name)
		g.Expect(os.MkdirAll(dir, 0o700)).To(Succeed())
		g.Expect(os.WriteFile(filepath.Join(dir, "owner"), []byte(owner+" 17"), 0o600)).To(Succeed())
		g.Expect(os.MkdirAll(filepath.Join(cgroups, "memory", filepath.Base(dir)), 0o700)).To(Succeed())
	}
	g.Expect(os.Mkdir(filepath.Join(temporary, "gpu-bundle-1"), 0o700)).To(Succeed())
	s := newSnapshot()
	g.Expect(s.addFolders(temporary, cgroups)).To(Succeed())
	left := []string{
		filepath.Join(temporary, "gpu-operator-node-ended"), filepath.Join(cgroups, "memory/gpu-operator-node-ended"),
		filepath.Join(temporary, "gpu-bundle-1"),
	}
	for _, path := range left {
		g.Expect(s.values).To(HaveKey(item{kindFolder, path}))
	}
	g.Expect(s.values).To(HaveLen(len(left)))
	s.values[item{kindProcess, fmt.Sprint(os.Getpid())}] = "of the bundle"
	g.Expect(s.addFolders(temporary, cgroups)).To(Succeed())
	g.Expect(s.values).To(HaveKey(item{kindFolder, filepath.Join(temporary, "gpu-operator-node-another")}))
}

// A program of the bundle that runs is found at whatever path it has; the same program of another bundle is none.
func TestProcessesOfTheBundle(t *testing.T) {
	g := NewWithT(t)
	bundle, elsewhere := t.TempDir(), t.TempDir()
	self, err := os.Executable()
	g.Expect(err).NotTo(HaveOccurred())
	content, err := os.ReadFile(self)
	g.Expect(err).NotTo(HaveOccurred())
	program := filepath.Join(bundle, "program")
	for _, path := range []string{program, filepath.Join(elsewhere, "copy")} {
		g.Expect(os.WriteFile(path, content, 0o700)).To(Succeed())
	}
	g.Expect(os.Link(program, filepath.Join(elsewhere, "link"))).To(Succeed())
	var pids []int
	for _, name := range []string{"copy", "link"} {
		command := exec.CommandContext(t.Context(), filepath.Join(elsewhere, name))
		command.Env = append(os.Environ(), waitVariable+"=1")
		input, err := command.StdinPipe()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(command.Start()).To(Succeed())
		t.Cleanup(func() { _, _ = input.Close(), command.Wait() })
		pids = append(pids, command.Process.Pid)
	}
	s := newSnapshot()
	g.Expect(s.addProcesses(bundle)).To(Succeed())
	g.Expect(s.values).To(Equal(map[item]string{
		{kindProcess, fmt.Sprint(pids[1])}: filepath.Join(elsewhere, "link"),
	}))
}
