//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// part is a compiled test with the environment that it needs.
type part struct {
	name string
	// dir is where it runs; args are the program and its arguments.
	dir  string
	args []string
	env  []string
	// check returns why the part cannot run here; nil if it can.
	check func(context.Context) error
	// stage, if not empty, is what this program does before it becomes the part's, in namespaces of its own.
	stage string
}

// parts are the parts of a run, in their order: the first says most about the machine for the least time.
func parts(bundle, results string, o options) []part {
	in := func(path string) string { return filepath.Join(bundle, path) }
	programs := part{
		name: "gpu", dir: in("test/gpu"), args: []string{in("test/gpu/gpu.test"), "-test.v", "-test.timeout=3m"},
		env:   []string{"GPU_TEST=1", "GPU_TEST_BIN=" + in("bin")},
		check: checkDriver,
	}
	node := part{
		name: "node", dir: in("test/node"),
		args: []string{in("test/node/node.test"), "-test.v", "-test.run=^TestAHostDriver$", "-test.timeout=10m"},
		env: []string{
			"TEST_PREBUILT=1", "TEST_NODE_STAND_IN=" + in("bin/stand-in"),
			"TEST_NODE_IMAGES=" + in("images"), "TEST_NODE_RESULTS=" + filepath.Join(results, "node.json"),
		},
		check: func(ctx context.Context) error { return errors.Join(checkDriver(ctx), checkNamespaces(ctx)) },
		stage: stageCgroups,
	}
	if o.persistence {
		node.env = append(node.env, "TEST_NODE_PERSISTENCE=1")
	}
	if o.played {
		programs.check, node.check = nil, checkNamespaces
		programs.env = append(programs.env, "PATH="+in("played/bin")+":"+os.Getenv("PATH"),
			"LD_LIBRARY_PATH="+in("played/lib"))
		node.env = append(node.env, "TEST_NODE_HOST_DRIVER="+in("played/usr"))
	}
	return []part{programs, node}
}

// checkDriver returns why this machine's driver cannot be tested.
func checkDriver(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, "nvidia-smi", "-L").CombinedOutput()
	if err != nil {
		first, _, _ := strings.Cut(string(out), "\n")
		return fmt.Errorf("nvidia-smi -L: %w %s", err, first)
	}
	return nil
}

// skipped is the line with which a test says that this machine cannot run it.
var skipped = regexp.MustCompile(`(?m)^SKIPPED: (.*)$`)

const (
	// atLimit is why a part has failed that was ended, or that had no time to begin.
	atLimit = "it was ended at the time limit"
	// endTime is how long a part may take to end when it is asked to. Then it is killed.
	endTime = 15 * time.Second
)

// run runs a part, whose output goes into a file of its name.
func (p part) run(ctx context.Context, results string) result {
	begin := time.Now()
	r := result{Name: p.name, State: stateSkipped, Tests: []test{}}
	var refused error
	if p.check != nil {
		refused = p.check(ctx)
	}
	switch {
	case ctx.Err() != nil:
		r.State, r.Reason = stateFailed, atLimit
		return r
	case refused != nil:
		r.Reason = strings.Join(strings.Fields(refused.Error()), " ")
		return r
	}
	path := filepath.Join(results, p.name+".txt")
	err := p.execute(ctx, path)
	r.Seconds = seconds(time.Since(begin))
	output, readErr := os.ReadFile(path)
	r.Tests = readTests(string(output))
	reason := skipped.FindStringSubmatch(string(output))
	switch {
	case ctx.Err() != nil:
		r.State, r.Reason = stateFailed, atLimit
	case err != nil || readErr != nil:
		r.State, r.Reason = stateFailed, errors.Join(err, readErr).Error()+"; see "+path
	case reason != nil:
		r.Reason = reason[1]
	case len(r.Tests) == 0:
		r.State, r.Reason = stateFailed, "it has run no test"
	default:
		r.State = statePassed
	}
	return r
}

// required returns the result as one of a part that must not be skipped.
func (r result) required() result {
	if r.State == stateSkipped {
		r.State, r.Reason = stateFailed, "skipped: "+r.Reason
	}
	return r
}

// execute runs the part's program. At the end of the context it is asked to end, and so cleans up.
func (p part) execute(ctx context.Context, output string) error {
	file, err := os.Create(output)
	if err != nil {
		return err
	}
	defer file.Close()
	args := p.args
	if p.stage != "" {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		args = append([]string{self}, args...)
	}
	command := exec.CommandContext(ctx, args[0], args[1:]...)
	command.Dir, command.Stdout, command.Stderr = p.dir, file, file
	command.Env = append(os.Environ(), p.env...)
	if p.stage != "" {
		command.Env = append(command.Env, stageVariable+"="+p.stage)
		command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	}
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = endTime
	return command.Run()
}

// reported is a line of go test: the beginning of a test, why it has shown nothing here, or its end.
var reported = regexp.MustCompile(
	`(?m)^=== RUN +(\S+)$|^ +\w+_test\.go:\d+: not run: (.*)$|^ *--- (PASS|FAIL|SKIP): (\S+) \(([0-9.]+)s\)$`)

// readTests reads the tests from the output of go test -v.
func readTests(output string) []test {
	states := map[string]string{"PASS": statePassed, "FAIL": stateFailed, "SKIP": stateSkipped}
	tests := []test{}
	running, reasons := "", map[string]string{}
	for _, found := range reported.FindAllStringSubmatch(output, -1) {
		begun, reason, state, name := found[1], found[2], found[3], found[4]
		switch {
		case begun != "":
			running = begun
		case reason != "":
			reasons[running] = reason
		default:
			duration, err := strconv.ParseFloat(found[5], 64)
			if err != nil {
				continue
			}
			tests = append(tests, test{Name: name, State: states[state], Reason: reasons[name], Seconds: duration})
		}
	}
	return tests
}
