package nvmlread

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Enter makes dir the root of this process and starts this program again in it, with these arguments: the driver's
// library then finds the files of the driver, and the C library that it was made for. It returns only an error. The
// program is executed by its descriptor, as it is no file of the new root; the kernel takes the loader from there.
// Needs CAP_SYS_CHROOT.
func Enter(dir string, args []string) error {
	program, err := unix.Open("/proc/self/exe", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open this program: %w", err)
	}
	if err := unix.Chroot(dir); err != nil {
		return fmt.Errorf("enter %s; is the container privileged? %w", dir, err)
	}
	if err := unix.Chdir("/"); err != nil {
		return fmt.Errorf("enter %s: %w", dir, err)
	}
	argv, err := syscall.SlicePtrFromStrings(args)
	if err != nil {
		return err
	}
	env, err := syscall.SlicePtrFromStrings(os.Environ())
	if err != nil {
		return err
	}
	empty := [1]byte{}
	_, _, errno := unix.Syscall6(unix.SYS_EXECVEAT, uintptr(program), uintptr(unsafe.Pointer(&empty[0])),
		uintptr(unsafe.Pointer(&argv[0])), uintptr(unsafe.Pointer(&env[0])), unix.AT_EMPTY_PATH, 0)
	return fmt.Errorf("start this program in %s; has it a C library? %w", dir, errno)
}
