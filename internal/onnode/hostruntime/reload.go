package hostruntime

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

var (
	errHidden = errors.New("the process is not visible; the pod needs hostPID")
	errOther  = errors.New("another program listens on its socket")
)

// Reload makes the process that has answered read its configuration. CRI-O and Docker do so at SIGHUP.
// containerd ends by it, as by the toolkit's signal, and its supervisor restarts it; its containers keep running.
// nameOf returns the name of the program of a process.
func (p Program) Reload(answer Answer, nameOf func(pid int) string) error {
	if answer.PID == 0 {
		return errHidden
	}
	// It is found first, so that its ID cannot become that of another process.
	process, err := os.FindProcess(answer.PID)
	if err != nil {
		return err
	}
	defer func() { _ = process.Release() }()
	if name := nameOf(answer.PID); name != string(p) {
		return fmt.Errorf("%w: process %d (%s)", errOther, answer.PID, name)
	}
	return process.Signal(syscall.SIGHUP)
}
