package host

import (
	"os"
	"syscall"
)

// privileges let a process change its root directory: as root it may; any other user may in a user
// namespace, where it is root.
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
