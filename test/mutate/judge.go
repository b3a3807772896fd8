package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// verdict is what the tests say of a mutant.
type verdict int

const (
	live    verdict = iota
	unrun           // live, as no test reaches it
	killed          // a test failed
	stopped         // killed by the time limit
)

func (v verdict) String() string { return [...]string{"live", "not reached", "killed", "stopped"}[v] }

// judge tries the mutants of one package.
type judge struct {
	scratch, overlay string
	suites           bool
	own              *trial
	// importers are the packages whose tests judge what the package's own leave alive; trials are theirs, once built.
	importers []*listed
	trials    map[string]*trial
	built     int
}

// newJudge builds the tests of a package with its mutants.
func newJudge(
	ctx context.Context, scratch string, p *loaded, mutants []*mutant, importers []*listed, suites bool,
) (*judge, error) {
	j := &judge{scratch: scratch, suites: suites, importers: importers, trials: map[string]*trial{}}
	if err := j.writeOverlay(p, mutants); err != nil {
		return nil, err
	}
	var err error
	j.own, err = j.build(ctx, p.listed)
	return j, err
}

// writeOverlay writes the files with the mutants, which the compiler reads in place of the package's.
func (j *judge) writeOverlay(p *loaded, mutants []*mutant) error {
	const private = 0o600
	replaced := map[string]string{}
	sources, _ := mutated(p, mutants)
	for _, s := range sources {
		to := filepath.Join(j.scratch, filepath.Base(s.path))
		replaced[s.path] = to
		if err := os.WriteFile(to, s.text, private); err != nil {
			return err
		}
	}
	encoded, err := json.Marshal(map[string]map[string]string{"Replace": replaced})
	if err != nil {
		return err
	}
	j.overlay = filepath.Join(j.scratch, "overlay.json")
	return os.WriteFile(j.overlay, encoded, private)
}

// trial is the built tests of a package.
type trial struct {
	directory, binary, temporary string
	// goflags make the programs that tests build with go build have the mutants, too.
	goflags string
	args    []string
	suites  bool
	limit   time.Duration
	reached map[int]bool
	// judges is false if all tests are skipped, as those of suites are with -short.
	judges bool
}

// build builds the tests of a package with the mutants, runs them without one, which must pass, and learns which
// mutants they reach. It returns nil for a package without tests.
func (j *judge) build(ctx context.Context, l *listed) (*trial, error) {
	if !l.hasTests() {
		return nil, nil
	}
	j.built++
	directory := filepath.Join(j.scratch, strconv.Itoa(j.built))
	if err := os.Mkdir(directory, 0o700); err != nil {
		return nil, err
	}
	t := &trial{
		directory: l.Dir, binary: filepath.Join(directory, "package.test"), temporary: filepath.Join(directory, "t"),
		args: []string{"-test.failfast", "-test.timeout=0"}, suites: j.suites, goflags: "GOFLAGS=-overlay=" + j.overlay,
	}
	if !j.suites {
		t.args = append(t.args, "-test.short")
	}
	if l.imports("github.com/onsi/ginkgo/v2") {
		t.args = append(t.args, "-ginkgo.fail-fast")
	}
	// A change may be a condition that go vet suspects.
	compiler := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-o", t.binary, "-overlay", j.overlay,
		l.ImportPath)
	if output, err := compiler.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the tests of %s with mutants: %w\n%s", l.name(), err, output)
	}
	return t, t.measure(ctx, l.name(), filepath.Join(directory, "reached"))
}

// measure runs the tests without a mutant. A run with one may take three times as long; the least limit is for
// tests so short that the machine's load is most of their time.
func (t *trial) measure(ctx context.Context, name, record string) error {
	const times, least, most = 3, 10 * time.Second, 30 * time.Minute
	t.limit = most
	begin := time.Now()
	verdict, output, err := t.run(ctx, reachedVariable+"="+record, "-test.v")
	if err != nil || verdict != live {
		return errors.Join(fmt.Errorf("the tests of %s fail without a mutant:\n%s", name, output), err)
	}
	t.limit = max(least, times*time.Since(begin))
	t.judges = ran(output)
	t.reached = map[int]bool{}
	lines, err := os.ReadFile(record)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, line := range strings.Fields(string(lines)) {
		number, err := strconv.Atoi(line)
		if err != nil {
			return fmt.Errorf("record of the mutants reached: %w", err)
		}
		t.reached[number] = true
	}
	return nil
}

// ran reports whether a test has run to its end, by the verbose output of all.
func ran(output []byte) bool { return bytes.Contains(output, []byte("--- PASS")) }

// canJudge reports whether the verdict of the tests says something: the only tests of a package may be suites that this
// run leaves out. Those of a package without any test are live.
func (j *judge) canJudge() bool { return j.own == nil || j.own.judges || len(j.importers) > 0 }

// memory bounds what a mutant that allocates in an endless loop gets, in KiB of addresses. etcd maps more, which
// suites start.
const memory = 8 << 20

// run runs the tests with a variable in their environment.
func (t *trial) run(ctx context.Context, variable string, args ...string) (verdict, []byte, error) {
	limited, cancel := context.WithTimeout(ctx, t.limit)
	defer cancel()
	if err := os.MkdirAll(t.temporary, 0o700); err != nil {
		return live, nil, err
	}
	defer os.RemoveAll(t.temporary)
	limits := "ulimit -v " + strconv.Itoa(memory) + " && "
	if t.suites {
		limits = ""
	}
	tests := exec.CommandContext(limited, "sh", slices.Concat([]string{"-c", limits + `exec "$0" "$@"`, t.binary},
		t.args, args)...)
	tests.Dir = t.directory
	tests.Env = append(os.Environ(), variable, "TMPDIR="+t.temporary, t.goflags)
	// Suites stop the processes that they have started; what other tests leave is killed with their group.
	tests.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	tests.Cancel = func() error { return syscall.Kill(-tests.Process.Pid, syscall.SIGINT) }
	tests.WaitDelay = 10 * time.Second
	output, err := tests.CombinedOutput()
	if tests.Process != nil {
		_ = syscall.Kill(-tests.Process.Pid, syscall.SIGKILL)
	}
	var failed *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return live, output, ctx.Err()
	case limited.Err() != nil:
		return stopped, output, nil
	case err == nil:
		return live, output, nil
	case errors.As(err, &failed):
		return killed, output, nil
	}
	return live, output, err
}

// try judges a mutant by the tests of its package, and then by those of the importers that reach it.
func (j *judge) try(ctx context.Context, m *mutant) (verdict, error) {
	best, err := j.own.try(ctx, m)
	if err != nil || best >= killed {
		return best, err
	}
	for _, l := range j.importers {
		t, built := j.trials[l.ImportPath]
		if !built {
			if t, err = j.build(ctx, l); err != nil {
				return live, err
			}
			j.trials[l.ImportPath] = t
		}
		found, err := t.try(ctx, m)
		if err != nil || found >= killed {
			return found, err
		}
		if found == live {
			best = live
		}
	}
	return best, nil
}

func (t *trial) try(ctx context.Context, m *mutant) (verdict, error) {
	if t == nil || !t.reached[m.number] {
		return unrun, nil
	}
	found, _, err := t.run(ctx, fmt.Sprintf("%s=%d", selectedVariable, m.number))
	return found, err
}
