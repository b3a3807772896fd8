package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	children "github.com/clusterpolicy/gpu-operator/test/process"
)

// stopGrace is how long a process may take to exit after SIGTERM before it is killed: the grace period of the
// operator's pod.
const stopGrace = 35 * time.Second

// process is a child that dies with this program and logs to a file.
type process struct {
	name    string
	cmd     *exec.Cmd
	logFile string
	done    chan struct{}
	err     error
}

// pollInterval is how often a condition is checked that cannot be watched.
const pollInterval = 50 * time.Millisecond

// startProcess starts a program with its output appended to logFile.
func startProcess(cmd *exec.Cmd, logFile string) (*process, error) {
	name := filepath.Base(cmd.Path)
	out, err := openLog(logFile)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if err := children.Start(cmd); err != nil {
		return nil, err
	}
	p := &process{name: name, cmd: cmd, logFile: logFile, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// stop ends the process by SIGTERM, then by SIGKILL. It succeeds for a process that has already exited.
func (p *process) stop() error {
	p.signal(syscall.SIGTERM)
	select {
	case <-p.done:
		return nil
	case <-time.After(stopGrace):
	}
	p.kill()
	return fmt.Errorf("%s did not exit within %s of SIGTERM and was killed", p.name, stopGrace)
}

// kill ends the process by SIGKILL and waits until it has exited.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

func (p *process) signal(sig syscall.Signal) {
	select {
	case <-p.done:
		return
	default:
	}
	// The process may exit in between; done reports that, whatever the error here.
	_ = p.cmd.Process.Signal(sig)
	if sig == syscall.SIGSTOP {
		children.AwaitStop(p.cmd.Process.Pid)
	}
}

// waitFor polls until ready returns nil, the process exits or the context ends.
func (p *process) waitFor(ctx context.Context, ready func(context.Context) error) error {
	return poll(ctx, p.name, p.logFile, ready, p.endedEarly)
}

// endedEarly returns an error if the process has exited.
func (p *process) endedEarly() error {
	select {
	case <-p.done:
		return fmt.Errorf("%s exited early, %s:\n%s", p.name, p.cmd.ProcessState, logTail(p.logFile))
	default:
		return nil
	}
}

// poll calls ready until it returns nil, ended returns an error or the context ends. Polling is needed as there is
// nothing to watch before a server listens.
func poll(ctx context.Context, name, logFile string, ready func(context.Context) error, ended func() error) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		if err := ended(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w:\n%s", name, errors.Join(ctx.Err(), err), logTail(logFile))
		case <-tick.C:
		}
	}
}

// openLog opens a log for appending.
func openLog(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	return file, nil
}

// logTail returns the end of a log, for error messages.
func logTail(path string) string {
	const size = 4000
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-size):])
}
