//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

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
		})
	}
}

func TestDifferences(t *testing.T) {
	g := NewWithT(t)
	before := snapshot{"file /etc/a": "1", "file /etc/b": "2", "mount at /": "ext4", "process 1": "of another run"}
	g.Expect(before.differences(before)).To(BeEmpty())
	g.Expect(before.differences(snapshot{"file /etc/a": "3", "mount at /": "ext4", "folder /tmp/c": "exists"})).
		To(Equal([]string{
			"file /etc/a has changed from 1 to 3", "file /etc/b is gone: 2", "folder /tmp/c is new: exists",
		}))
}

func TestSnapshotOfFiles(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	write := func(name, text string) {
		g.Expect(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700)).To(Succeed())
		g.Expect(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)).To(Succeed())
	}
	taken := func(content bool) snapshot {
		s := snapshot{}
		g.Expect(s.addFiles(dir, content, []string{filepath.Join(dir, "results")})).To(Succeed())
		return s
	}
	write("a", "1")
	write("results/summary", "1")
	names, contents := taken(false), taken(true)
	g.Expect(names).To(HaveLen(2), "the folder and one file")
	write("a", "2")
	write("results/further", "1")
	g.Expect(names.differences(taken(false))).To(BeEmpty())
	g.Expect(contents.differences(taken(true))).
		To(ConsistOf(HavePrefix("file " + filepath.Join(dir, "a") + " has changed")))
	write("b", "1")
	g.Expect(names.differences(taken(false))).To(ConsistOf(HavePrefix("file " + filepath.Join(dir, "b") + " is new")))
}

// A program of the bundle that runs is found at whatever path it has; the same program of another bundle is none.
func TestProcessesOfTheBundle(t *testing.T) {
	g := NewWithT(t)
	bundle, elsewhere := t.TempDir(), t.TempDir()
	sleep, err := exec.LookPath("sleep")
	g.Expect(err).NotTo(HaveOccurred())
	content, err := os.ReadFile(sleep)
	g.Expect(err).NotTo(HaveOccurred())
	program := filepath.Join(bundle, "program")
	for _, path := range []string{program, filepath.Join(elsewhere, "copy")} {
		g.Expect(os.WriteFile(path, content, 0o700)).To(Succeed())
	}
	g.Expect(os.Link(program, filepath.Join(elsewhere, "link"))).To(Succeed())
	var pids []int
	for _, name := range []string{"copy", "link"} {
		command := exec.CommandContext(t.Context(), filepath.Join(elsewhere, name), "60")
		g.Expect(command.Start()).To(Succeed())
		t.Cleanup(func() { _ = command.Wait() })
		pids = append(pids, command.Process.Pid)
	}
	s := snapshot{}
	g.Expect(s.addProcesses(bundle)).To(Succeed())
	g.Expect(s).To(Equal(snapshot{fmt.Sprintf("process %d", pids[1]): filepath.Join(elsewhere, "link")}))
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
}

func notAllowed(context.Context) error { return errors.New("not allowed here") }
