package process

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
)

// Start starts a command. On Linux the kernel kills it when this program dies. It leads a process
// group of its own, which keeps Ctrl-C in a terminal from reaching it before this program does what
// it wants. Attributes that the caller has set are kept.
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

// work reaches a lasting thread that is idle.
var work = make(chan func())

// OnLastingThread calls f on a thread that lives as long as this program, and returns after f. A child that is bound
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

// serve makes its thread a lasting one, on which it runs the task and then those of later calls.
func serve(task func()) {
	runtime.LockOSThread()
	for {
		task()
		task = <-work
	}
}
