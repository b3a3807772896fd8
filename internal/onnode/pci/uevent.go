package pci

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// kernelGroup is the multicast group of the kernel's own events.
	kernelGroup = 1
	// maxEvent in bytes: the kernel's events have at most 2 KiB of variables and a path.
	maxEvent = 8 << 10
)

// Changes returns a channel that receives after a PCI device was added, removed or changed. Changes that are not
// received yet are merged. The channel is never closed, and receives nothing more once ctx has ended. Changes
// fails where the kernel grants no socket for its events; in a user namespace of its own a container gets the
// socket, but no events, so callers must poll too.
func Changes(ctx context.Context) (<-chan struct{}, error) {
	socket, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
		unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return nil, fmt.Errorf("open a socket for the kernel's device events: %w", err)
	}
	events := os.NewFile(uintptr(socket), "device events")
	if err := unix.Bind(socket, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: kernelGroup}); err != nil {
		return nil, errors.Join(fmt.Errorf("listen to the kernel's device events: %w", err), events.Close())
	}
	// Close ends the read below.
	context.AfterFunc(ctx, func() { _ = events.Close() })
	changes := make(chan struct{}, 1)
	go forward(events, changes)
	return changes, nil
}

func forward(events io.Reader, changes chan<- struct{}) {
	message := make([]byte, maxEvent)
	for {
		n, err := events.Read(message)
		// ENOBUFS: events were lost, which may have been of PCI devices.
		if err != nil && !errors.Is(err, unix.ENOBUFS) {
			return
		}
		if err == nil && !isPCI(message[:n]) {
			continue
		}
		select {
		case changes <- struct{}{}:
		default:
		}
	}
}

// isPCI reports whether a kernel event is about a PCI device. An event is a heading ("add@/devices/...") and
// variables ("SUBSYSTEM=pci"), each terminated by a zero byte.
func isPCI(message []byte) bool {
	for variable := range bytes.SplitSeq(message, []byte{0}) {
		if string(variable) == "SUBSYSTEM=pci" {
			return true
		}
	}
	return false
}
