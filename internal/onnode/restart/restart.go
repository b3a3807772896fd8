package restart

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/atomicfile"
)

// Now returns the time since the boot of the node, which setting its clock does not change.
func Now() (time.Duration, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0, fmt.Errorf("read the time since the boot: %w", err)
	}
	return time.Duration(now.Nano()), nil
}

// Note writes the current time since the boot to a file, for Noted.
func Note(file string) error {
	now, err := Now()
	if err != nil {
		return err
	}
	return atomicfile.Write(file, 0o644, strings.NewReader(strconv.FormatInt(int64(now), 10)+"\n"))
}

// Noted returns the time that Note has written to the file, and false where it has not yet.
func Noted(file string) (at time.Duration, noted bool, err error) {
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	nanoseconds, err := strconv.ParseInt(strings.TrimSpace(string(content)), 10, 64)
	if err != nil {
		return 0, false, fmt.Errorf("read %s: %w", file, err)
	}
	return time.Duration(nanoseconds), true, nil
}

// Since returns nil if the process that listens on the socket has started after that time since the boot, and
// otherwise one clause why not. procRoot is where procfs is mounted, with the processes of the host.
func Since(socket, procRoot string, after time.Duration) error {
	pid, err := listener(socket)
	if err != nil {
		return err
	}
	started, err := startOf(procRoot, pid)
	if err != nil {
		return err
	}
	if started <= after {
		return fmt.Errorf("process %d, which listens on %s, has not restarted yet", pid, socket)
	}
	return nil
}

// listener returns the ID of the process that listens on the socket.
func listener(socket string) (int32, error) {
	connection, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket})
	if err != nil {
		return 0, fmt.Errorf("no process accepts connections: %w", err)
	}
	defer func() { _ = connection.Close() }()
	raw, err := connection.SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *unix.Ucred
	var peerErr error
	if err := raw.Control(func(fd uintptr) {
		peer, peerErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if peerErr != nil {
		return 0, fmt.Errorf("find the process that listens on %s: %w", socket, peerErr)
	}
	return peer.Pid, nil
}

const (
	// startField is the field of /proc/PID/stat with the start of the process, counted from the one after its name; see
	// proc_pid_stat(5), where it is the 22nd of all.
	startField = 19
	// tick is its unit: USER_HZ is 100 on every architecture that the driver supports.
	tick = time.Second / 100
)

// startOf returns when a process started, since the boot.
func startOf(procRoot string, pid int32) (time.Duration, error) {
	path := filepath.Join(procRoot, strconv.Itoa(int(pid)), "stat")
	content, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("read when process %d started; does the pod have hostPID? %w", pid, err)
	}
	// The name may contain anything, including parentheses.
	fields := strings.Fields(string(content[bytes.LastIndexByte(content, ')')+1:]))
	if len(fields) <= startField {
		return 0, fmt.Errorf("%s is malformed: it has %d fields after the name", path, len(fields))
	}
	ticks, err := strconv.ParseInt(fields[startField], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s is malformed: %w", path, err)
	}
	return time.Duration(ticks) * tick, nil
}
