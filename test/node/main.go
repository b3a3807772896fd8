//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	children "github.com/clusterpolicy/gpu-operator/test/process"
)

// The program is started again for each of its parts; this variable names the part.
const (
	partVariable = "GPU_OPERATOR_NODE_PART"
	// partInside is the caller's own work, in a network of its own.
	partInside = "inside"
	// partWatcher cleans up after it.
	partWatcher = "watcher"
	// partMachine is the first process of a machine.
	partMachine = "machine"
)

// dirVariable names the folder of the run.
const dirVariable = "GPU_OPERATOR_NODE_DIR"

// Main runs a program that has real nodes, and returns its exit code. Call it at the very start of a program, as in
// TestMain, since it starts the program again for its parts. prepare runs in the program as it was started, with the
// network of this computer; run runs again in a process of its own, where Dir and New can be used. Arguments,
// environment and standard streams are the same in both.
func Main(prepare func(context.Context) error, run func() int) int {
	var err error
	switch os.Getenv(partVariable) {
	case partMachine:
		err = boot()
	case partWatcher:
		err = watch(os.Getenv(dirVariable))
	case partInside:
		if err = enter(); err == nil {
			return run()
		}
	default:
		var code int
		if code, err = outside(prepare); err == nil {
			return code
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// Part reports whether this process is one that Main has started.
func Part() bool { return os.Getenv(partVariable) != "" }

// Dir returns the folder of the run.
func Dir() string { return os.Getenv(dirVariable) }

// enter makes this process, and all that it starts, a part of the run.
func enter() error {
	if err := joinCgroup(filepath.Join(filepath.Base(Dir()), partInside)); err != nil {
		return err
	}
	temp := filepath.Join(Dir(), "tmp")
	if err := errors.Join(os.Mkdir(temp, 0o755), os.Setenv("TMPDIR", temp)); err != nil {
		return fmt.Errorf("make a folder for temporary files: %w", err)
	}
	return setUpNetwork()
}

// part returns the command that starts this program as another part.
func part(name, dir string, args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), partVariable+"="+name, dirVariable+"="+dir)
	return cmd
}

// outside prepares, starts the caller's work in a network of its own, and waits until all is removed.
func outside(prepare func(context.Context) error) (code int, err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := prepare(ctx); err != nil {
		return 0, err
	}
	if err := removeLeftovers(); err != nil {
		return 0, err
	}
	dir, err := newRunDir()
	if err != nil {
		return 0, err
	}
	watcher, err := startWatcher(dir)
	if err != nil {
		return 0, errors.Join(err, os.RemoveAll(dir))
	}
	defer func() { err = errors.Join(err, watcher.end()) }()
	if err := makeCgroup(filepath.Join(filepath.Base(dir), partInside)); err != nil {
		return 0, err
	}
	inside := part(partInside, dir, os.Args[1:]...)
	inside.Stdin, inside.Stdout, inside.Stderr = os.Stdin, os.Stdout, os.Stderr
	inside.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if err := children.Start(inside); err != nil {
		return 0, err
	}
	forwarded := context.AfterFunc(ctx, func() { _ = inside.Process.Signal(syscall.SIGTERM) })
	defer forwarded()
	var exit *exec.ExitError
	if err := inside.Wait(); err != nil && !errors.As(err, &exit) {
		return 0, err
	}
	if code = inside.ProcessState.ExitCode(); code < 0 {
		return 0, fmt.Errorf("the program ended early: %s", inside.ProcessState)
	}
	return code, nil
}
