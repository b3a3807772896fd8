package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/clusterpolicy/gpu-operator/test/simulator/host/standin"
)

// Facilities of the records of the kernel log: who has written them.
const (
	FacilityKernel = 0
	FacilityUser   = 1
)

// MakeKernelLog makes what replaces the device of the kernel log in containers: a pipe, from which its one reader gets
// what WriteKernelLog writes. The device itself would have the records of this computer, and takes none as the
// kernel's. As long as the returned descriptor is open, readers meet no end.
func MakeKernelLog(path string) (descriptor int, err error) {
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), unix.Mkfifo(path, 0o600)); err != nil {
		return -1, fmt.Errorf("make the kernel log: %w", err)
	}
	descriptor, err = unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open the kernel log: %w", err)
	}
	return descriptor, nil
}

// WriteKernelLog writes a record in the format of /dev/kmsg, at this moment. Its number counts the records of the boot,
// from 1.
func WriteKernelLog(path string, number, facility int, text string) error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return fmt.Errorf("read the clock of the kernel: %w", err)
	}
	const levelError, levels = 3, 8
	log, err := os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("write to the kernel log: %w", err)
	}
	_, err = fmt.Fprintf(log, "%d,%d,%d,-;%s\n", facility*levels+levelError, number, now.Nano()/1000, text)
	return errors.Join(err, log.Close())
}

// openKernelLog makes the kernel log of a machine that has just booted.
func (h *Host) openKernelLog() error {
	path := h.Path(kernelLog)
	descriptor, err := MakeKernelLog(path)
	if err == nil {
		h.log = os.NewFile(uintptr(descriptor), path)
	}
	return err
}

// LogXid makes the driver log an Xid of a GPU: its number, or that and a text after a comma.
func (h *Host) LogXid(gpu int, xid string) error {
	return h.logKernel(FacilityKernel, fmt.Sprintf("NVRM: Xid (PCI:%s): %s", standin.GPUAddress(gpu), xid))
}

// LogReset does what a person does who has reset a GPU.
func (h *Host) LogReset(gpu int) error {
	return h.logKernel(FacilityUser, "gpu-operator: GPU "+standin.GPUAddress(gpu)+" has been reset")
}

func (h *Host) logKernel(facility int, text string) error {
	h.logged++
	return WriteKernelLog(h.Path(kernelLog), h.logged, facility, text)
}
