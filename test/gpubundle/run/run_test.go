//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/clusterpolicy/gpu-operator/test/needs"
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
=== RUN   TestB
=== RUN   TestB/part
    b_test.go:12: not run: no GPU has it
--- PASS: TestB (0.00s)
    --- SKIP: TestB/part (0.00s)
FAIL
`
	g.Expect(readTests(output)).To(Equal([]test{
		{Name: "TestA", State: stateFailed, Seconds: 1.25},
		{Name: "TestA/part_one", State: statePassed, Seconds: 0.5},
		{Name: "TestA/part_two", State: stateFailed, Seconds: 0.75},
		{Name: "TestB", State: statePassed},
		{Name: "TestB/part", State: stateSkipped, Reason: "no GPU has it"},
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

// A run passes only if no part has failed, and the machine is as before.
func TestTheSummary(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	s := summary{Parts: []result{
		{Name: "gpu", State: statePassed, Tests: []test{
			{Name: "TestA", State: statePassed}, {Name: "TestB", State: stateSkipped, Reason: "no GPU has it"},
		}},
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
		ContainSubstring("TestA\n"), ContainSubstring("TestB: no GPU has it\n"),
		ContainSubstring("The machine differs: mount at /x")))
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
		needs.Unmet(t, needs.Root, "mounts folders")
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
