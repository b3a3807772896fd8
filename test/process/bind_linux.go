package process

import "syscall"

// bind ties a child's life to that of this program.
func bind(attributes *syscall.SysProcAttr) {
	attributes.Pdeathsig, attributes.Setpgid = syscall.SIGKILL, true
}
