package host

import (
	"os"
	"syscall"
)

// privileges lets a process change its root directory: root may do so, any other user in a user namespace, where it
// is root.
func privileges() *syscall.SysProcAttr {
	if os.Geteuid() == 0 {
		return nil
	}
	return &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}},
	}
}
