package process

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
)

// spawner starts processes on one thread that lives as long as this program: the kernel sends the
// parent-death signal when the *thread* that forked ends, and the Go runtime may end threads.
var spawner = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

// Start starts a command. On Linux the kernel kills it when this program dies. It leads a process
// group of its own, which keeps Ctrl-C in a terminal from reaching it before this program does what
// it wants. Attributes that the caller has set are kept.
func Start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	bind(cmd.SysProcAttr)
	started := make(chan error)
	spawner() <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", filepath.Base(cmd.Path), err)
	}
	return nil
}
