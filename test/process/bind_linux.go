package process

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// bind makes a child die with this program.
func bind(attributes *syscall.SysProcAttr) {
	attributes.Pdeathsig, attributes.Setpgid = syscall.SIGKILL, true
}

// bindSelf makes this process, and the program that it executes, die with its parent.
func bindSelf() error {
	return unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0)
}
