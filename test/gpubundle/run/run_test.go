//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
)

// waitVariable makes this program wait for the end of its standard input, and end.
const waitVariable = "GPU_BUNDLE_TEST_WAIT"

func TestMain(m *testing.M) {
	if os.Getenv(waitVariable) != "" {
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	m.Run()
}

func TestReadTests(t *testing.T) {
	g := NewWithT(t)
	const output = `=== RUN   TestA
=== RUN   TestA/part_one
    a_test.go:1: --- PASS: no test
--- FAIL: TestA (1.25s)
    --- PASS: TestA/part_one (0.50s)
    --- FAIL: TestA/part_two (0.75s)
--- SKIP: TestB (0.00s)
FAIL
`
	g.Expect(readTests(output)).To(Equal([]test{
		{Name: "TestA", State: stateFailed, Seconds: 1.25},
		{Name: "TestA/part_one", State: statePassed, Seconds: 0.5},
		{Name: "TestA/part_two", State: stateFailed, Seconds: 0.75},
		{Name: "TestB", State: stateSkipped},
	}))
}

// A part is judged by its program: what it prints, and how it ends.
func TestAPartIsJudged(t *testing.T) {
	tests := map[string]struct {
		script, state, reason string
	}{
		"passes":            {script: "echo '--- PASS: TestA (0.10s)'", state: statePassed},
		"fails":             {script: "echo '--- FAIL: TestA (0.10s)'; exit 1", state: stateFailed, reason: "exit status 1"},
		"cannot run here":   {script: "echo 'SKIPPED: no cgroup'", state: stateSkipped, reason: "no cgroup"},
		"has run no test":   {script: "echo nothing", state: stateFailed, reason: "no test"},
		"is not there":      {state: stateFailed, reason: "no such file"},
		"is skipped before": {script: "exit 1", state: stateSkipped, reason: "not allowed here"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			dir := t.TempDir()
			p := part{name: "part", dir: dir, args: []string{"/bin/sh", "-c", test.script}}
			switch name {
			case "is not there":
				p.args = []string{filepath.Join(dir, "missing")}
			case "is skipped before":
				p.check = notAllowed
			}
			r := p.run(t.Context(), dir)
			g.Expect(r.State).To(Equal(test.state), "%+v", r)
			g.Expect(r.Reason).To(ContainSubstring(test.reason))
			required := r.required()
			if r.State == stateSkipped {
				g.Expect(required.State).To(Equal(stateFailed))
				g.Expect(required.Reason).To(ContainSubstring(test.reason))
			} else {
				g.Expect(required).To(Equal(r))
			}
		})
	}
}

// A part for which no time is left was not skipped: what its check says then is nothing about the machine.
func TestAPartAtTheLimit(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p := part{name: "part", args: []string{"/bin/sh", "-c", "exit 1"}}
	for _, p.check = range []func(context.Context) error{nil, notAllowed} {
		r := p.run(ctx, t.TempDir())
		g.Expect(r.State).To(Equal(stateFailed))
		g.Expect(r.Reason).To(ContainSubstring("time limit"))
	}
}

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

// A run passes only if no part has failed, and the machine is as before.
func TestTheSummary(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	s := summary{Parts: []result{
		{Name: "gpu", State: statePassed, Tests: []test{{Name: "TestA", State: statePassed}}},
		{Name: "node", State: stateSkipped, Reason: "no cgroups"},
	}}
	g.Expect(s.passed()).To(BeTrue())
	g.Expect(s.end()).To(ContainSubstring("has not ended"))
	s.Ended, s.Others = true, []string{"file /run/user/1000 is new: d---------"}
	g.Expect(s.passed()).To(BeTrue(), "what others change does not count")
	g.Expect(s.end()).To(And(ContainSubstring("The machine is as before"), ContainSubstring("changed 1 names")))
	s.Left = []string{"mount at /x is new: tmpfs"}
	g.Expect(s.passed()).To(BeFalse())
	g.Expect(s.write(dir)).To(Succeed())
	text, err := os.ReadFile(filepath.Join(dir, "summary.txt"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(text)).To(And(ContainSubstring("skipped  node"), ContainSubstring("no cgroups"),
		ContainSubstring("TestA"), ContainSubstring("The machine differs: mount at /x")))
	content, err := os.ReadFile(filepath.Join(dir, "summary.json"))
	g.Expect(err).NotTo(HaveOccurred())
	var read summary
	g.Expect(json.Unmarshal(content, &read)).To(Succeed())
	g.Expect(read).To(Equal(s))
	s.Left, s.Parts[1].State = nil, stateFailed
	g.Expect(s.passed()).To(BeFalse())
}

func TestControllersOfMounts(t *testing.T) {
	g := NewWithT(t)
	const mounts = "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0\n" +
		"cgroup2 /sys/fs/cgroup/unified cgroup2 rw,memory 0 0\n"
	g.Expect(hasController(mounts, "cpuacct")).To(BeTrue())
	g.Expect(hasController(mounts, "memory")).To(BeFalse())
	g.Expect(hierarchiesBelow(mounts+"cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\ntmpfs /sys/fs/cgroup/x tmpfs rw 0 0\n",
		"/sys/fs/cgroup")).To(Equal([]string{"/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/unified"}))
}

// What is written into a folder that was covered is not in the machine's own, and the mounts in it are still there.
func TestCover(t *testing.T) {
	g := NewWithT(t)
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	mounted := filepath.Join(dir, "mounted")
	g.Expect(os.Mkdir(mounted, 0o700)).To(Succeed())
	covered := make(chan error)
	go func() {
		// The thread ends with this function, as it is not unlocked, and with it the namespace.
		runtime.LockOSThread()
		covered <- coverApart(dir, mounted)
	}()
	g.Expect(<-covered).To(Succeed())
	g.Expect(filepath.Join(dir, "new")).NotTo(BeAnExistingFile())
}

// coverApart covers a folder with a mount in it, and uses both, in a mount namespace that this thread gets.
func coverApart(dir, mounted string) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", mounted, "tmpfs", 0, ""); err != nil {
		return err
	}
	kept := filepath.Join(mounted, "kept")
	if err := os.WriteFile(kept, nil, 0o600); err != nil {
		return err
	}
	if err := cover(dir, []string{mounted}); err != nil {
		return err
	}
	_, err := os.Stat(kept)
	return errors.Join(err, os.WriteFile(filepath.Join(dir, "new"), nil, 0o600))
}

func notAllowed(context.Context) error { return errors.New("not allowed here") }
