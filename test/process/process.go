package process

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// Start starts a command. On Linux the kernel kills it when this program dies. It has its own process group, so that
// Ctrl-C in a terminal only reaches this program. Attributes that the caller has set are kept.
func Start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	bind(cmd.SysProcAttr)
	var err error
	OnLastingThread(func() { err = cmd.Start() })
	if err != nil {
		return fmt.Errorf("start %s: %w", filepath.Base(cmd.Path), err)
	}
	return nil
}

// work sends tasks to idle lasting threads.
var work = make(chan func())

// OnLastingThread calls f on a thread that lasts until this program exits, and returns after f. A child that is bound
// to its parent has to be started on one: the kernel sends the parent-death signal when the *thread* that forked
// ends, and the Go runtime may end threads. Calls do not wait for each other.
func OnLastingThread(f func()) {
	done := make(chan struct{})
	task := func() { defer close(done); f() }
	select {
	case work <- task:
	default:
		go serve(task)
	}
	<-done
}

// serve locks its thread, on which it runs the task and then those of later calls.
func serve(task func()) {
	runtime.LockOSThread()
	for {
		task()
		task = <-work
	}
}

// Run runs a command in a folder; its error includes the output.
func Run(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}
