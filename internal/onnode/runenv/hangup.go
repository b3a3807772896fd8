package runenv

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Where the kernel has a system call for a filter: see struct seccomp_data in seccomp(2). Of 64 bits the lower ones
// come first on every architecture that the driver supports.
const (
	callNumber       = 0
	callArchitecture = 4
	firstArgument    = 16
	secondArgument   = 24
)

// architectures are the kernel's numbers of those that the driver supports.
var architectures = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// denyOwnHangup makes this thread, and the program that replaces this one from it, get ESRCH where they send SIGHUP to
// their own process group, as process 0. NVIDIA's container toolkit does so where it cannot see which process listens
// on containerd's socket: it would end, with exit code 0, in place of containerd. With an error it tries again.
//
// A kernel without such filters, or a container that may not set one, leaves all as it is.
func denyOwnHangup() {
	runtime.LockOSThread()
	// Each condition that does not hold leads to the last instruction.
	conditions := []struct{ offset, value uint32 }{
		{callArchitecture, architectures[runtime.GOARCH]},
		{callNumber, unix.SYS_KILL},
		{firstArgument, 0},
		{secondArgument, uint32(unix.SIGHUP)},
	}
	var filter []unix.SockFilter
	for i, c := range conditions {
		after := uint8(2*(len(conditions)-i-1) + 1)
		filter = append(filter,
			unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: c.offset},
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: c.value, Jf: after})
	}
	filter = append(filter,
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ESRCH)},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_ = unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
	runtime.KeepAlive(filter)
}
