package process

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// bind makes a child die with this program.
func bind(attributes *syscall.SysProcAttr) {
	attributes.Pdeathsig, attributes.Setpgid = syscall.SIGKILL, true
}

// BindSelf makes this process, and the program that it executes, die with its parent. The signal belongs to the calling
// thread, which is to be locked (runtime.LockOSThread): a program that another thread executes does not have it.
func BindSelf() error {
	return unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0)
}
