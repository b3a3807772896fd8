package process

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// bind ties a child's life to that of this program.
func bind(attributes *syscall.SysProcAttr) {
	attributes.Pdeathsig, attributes.Setpgid = syscall.SIGKILL, true
}

// bindSelf ties the life of this process, and of what it becomes, to that of its parent.
func bindSelf() error {
	return unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0)
}
