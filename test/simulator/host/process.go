package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"

	"k8s.io/apimachinery/pkg/types"

	children "github.com/clusterpolicy/gpu-operator/test/process"
)

// maxMessage is the size in bytes to which a kubelet truncates a termination message.
const maxMessage = 4096

// signalled plus the number of a signal is the exit code of a process that the signal ended.
const signalled = 128

// Process is one run of a container: gpu-node, or the program that it has executed.
type Process struct {
	Pod, App, Container string
	PodUID              types.UID
	// PID is the process id on this computer.
	PID int

	cmd        *exec.Cmd
	terminated string
	became     atomic.Pointer[[]string]
	done       chan struct{}
	exit       Exit
}

// Exit is the result of a process.
type Exit struct {
	// Code is the exit code, or 128 plus the number of the signal that ended it.
	Code int32
	// Message is its termination message.
	Message string
}

// Start starts a container's program, gpu-node or the CUDA program, with the arguments, environment and files of the
// manifest. Host.Log returns its output.
func (h *Host) Start(ctx context.Context, c Container) (*Process, error) {
	files, err := h.filesystem(h.volumes(ctx, c.Pod), c)
	if err != nil {
		return nil, err
	}
	argv, becomes, err := h.commandLine(ctx, c, files)
	if err != nil {
		return nil, err
	}
	bin, err := h.installCommand(c, becomes)
	if err != nil {
		return nil, err
	}
	env, err := h.environment(c, bin)
	if err != nil {
		return nil, err
	}
	cmd := &exec.Cmd{Path: argv[0], Args: argv, Env: env, Dir: files.root}
	if security := c.Spec.SecurityContext; security != nil && security.Privileged != nil && *security.Privileged {
		cmd.SysProcAttr = privileges()
	}
	p := &Process{
		Pod: c.Pod.Name, PodUID: c.Pod.UID, App: c.App, Container: c.Spec.Name,
		cmd: cmd, terminated: h.terminationLog(c), done: make(chan struct{}),
	}
	return p, h.launch(p, becomes != "")
}

// launch starts the process and reports its exit. One that may execute another program inherits a pipe, on which that
// program sends its environment.
func (h *Host) launch(p *Process, becomes bool) error {
	log, err := os.OpenFile(h.logFile(p.App, p.Container), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open the log of container %s: %w", p.Container, err)
	}
	defer log.Close()
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if becomes {
		reader, writer, err := os.Pipe()
		if err != nil {
			return fmt.Errorf("make a pipe: %w", err)
		}
		defer writer.Close()
		p.cmd.ExtraFiles = []*os.File{writer}
		defer func() { go h.receive(p, reader) }()
	}
	if err := children.Start(p.cmd); err != nil {
		return err
	}
	p.PID = p.cmd.Process.Pid
	h.lock.Lock()
	h.processes = append(h.processes, p)
	h.lock.Unlock()
	go h.await(p)
	return nil
}

// receive waits for the environment of the program that the process executes, if it ever does.
func (h *Host) receive(p *Process, pipe *os.File) {
	defer pipe.Close()
	content, err := io.ReadAll(pipe)
	if err != nil || len(content) == 0 {
		return
	}
	env := strings.Split(string(content), "\x00")
	p.became.Store(&env)
	h.changed()
}

func (h *Host) await(p *Process) {
	err := p.cmd.Wait()
	// Its remaining child processes die with it, as in a container.
	p.signal(-p.PID, syscall.SIGKILL)
	p.exit = Exit{Code: exitCode(p.cmd.ProcessState, err), Message: message(p.terminated)}
	h.lock.Lock()
	h.processes = slices.DeleteFunc(h.processes, func(other *Process) bool { return other == p })
	h.lock.Unlock()
	close(p.done)
	h.changed()
}

func exitCode(state *os.ProcessState, err error) int32 {
	if state == nil {
		return signalled
	}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return signalled + int32(status.Signal())
	}
	if state.ExitCode() < 0 || err != nil && state.ExitCode() == 0 {
		return signalled
	}
	return int32(state.ExitCode())
}

// message reads a termination message; empty if there is none.
func message(path string) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(bytes.TrimRight(content[:min(len(content), maxMessage)], "\n"))
}

// Ended returns the result of the process, if it has exited.
func (p *Process) Ended() (Exit, bool) {
	select {
	case <-p.done:
		return p.exit, true
	default:
		return Exit{}, false
	}
}

// Became returns the environment of the program that gpu-node has executed, if it has.
func (p *Process) Became() (env []string, ok bool) {
	if found := p.became.Load(); found != nil {
		return *found, true
	}
	return nil, false
}

// Becomes reports whether the process is meant to execute another program.
func (p *Process) Becomes() bool { return len(p.cmd.ExtraFiles) > 0 }

// Terminate sends SIGTERM, as a kubelet does.
func (p *Process) Terminate() { p.signal(p.PID, syscall.SIGTERM) }

// Kill ends the process and its child processes.
func (p *Process) Kill() { p.signal(-p.PID, syscall.SIGKILL) }

// signal signals a process, or with a negative number its group. It succeeds for one that has exited.
func (p *Process) signal(pid int, sig syscall.Signal) {
	if _, ended := p.Ended(); !ended {
		_ = syscall.Kill(pid, sig)
	}
}

// Check returns why the programs of containers cannot run on this computer, in one line; nil if they can. It tries
// the one that needs privileges: a driver's program in the driver's root.
func Check(programs Programs) error {
	dir, err := os.MkdirTemp("", "gpu-operator-check-")
	if err != nil {
		return fmt.Errorf("create a directory: %w", err)
	}
	defer os.RemoveAll(dir)
	if err := copyProgram(programs.StandIn, filepath.Join(dir, smiPath)); err != nil {
		return err
	}
	err = runIn(dir, smiPath)
	// Another process that is just being forked may still have the file open for writing.
	for errors.Is(err, syscall.ETXTBSY) {
		err = runIn(dir, smiPath)
	}
	if err != nil {
		return fmt.Errorf("gpu-node cannot run a driver's nvidia-smi in its own root here: run as root, or allow user "+
			"namespaces: %w", err)
	}
	return nil
}

// runIn runs a program in a root directory.
func runIn(root, program string) error {
	attributes := privileges()
	if attributes == nil {
		attributes = &syscall.SysProcAttr{}
	}
	attributes.Chroot = root
	cmd := &exec.Cmd{Path: program, Args: []string{program}, Dir: "/", SysProcAttr: attributes}
	if err := children.Start(cmd); err != nil {
		return err
	}
	return cmd.Wait()
}
