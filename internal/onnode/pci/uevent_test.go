package pci

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
)

func TestIsPCI(t *testing.T) {
	tests := map[string]struct {
		message string
		want    bool
	}{
		"a device is added": {
			message: "add@/devices/pci0000:00/0000:00:05.0\x00ACTION=add\x00DEVPATH=/devices/pci0000:00/0000:00:05.0\x00" +
				"SUBSYSTEM=pci\x00PCI_CLASS=30200\x00SEQNUM=4711\x00", want: true},
		"a driver is bound": {
			message: "bind@/devices/x\x00ACTION=bind\x00SUBSYSTEM=pci\x00DRIVER=nvidia\x00",
			want:    true,
		},
		"a network device appears": {message: "add@/devices/x\x00ACTION=add\x00SUBSYSTEM=net\x00INTERFACE=SUBSYSTEM=pci\x00"},
		"the bus of PCI Express":   {message: "add@/devices/x\x00SUBSYSTEM=pci_express\x00"},
		"nothing":                  {message: ""},
		"noise":                    {message: "SUBSYSTEM=\x00\x00pci"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(isPCI([]byte(tc.message))).To(Equal(tc.want))
		})
	}
}

// Writing to its uevent file makes the kernel repeat the event of a device.
func TestChangesReportsTheKernelsEvent(t *testing.T) {
	devices, err := filepath.Glob("/sys/bus/pci/devices/*/uevent")
	if err != nil || len(devices) == 0 || unix.Access(devices[0], unix.W_OK) != nil {
		t.Skip("needs a PCI device and the right to make the kernel repeat its event")
	}
	g := NewWithT(t)
	before := openSockets(t)
	changes, err := Changes(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	// Another test counts the sockets, too.
	t.Cleanup(func() { g.Eventually(func() int { return openSockets(t) }, time.Minute).Should(Equal(before)) })
	g.Expect(changes).NotTo(Receive())
	if err := os.WriteFile(devices[0], []byte("change"), 0); err != nil {
		t.Skipf("/sys is mounted read-only: %v", err)
	}
	g.Eventually(changes, "1m").Should(Receive())
}

// script is what the reads of a socket give: an event of a subsystem, or an error.
type script []any

func (s *script) Read(message []byte) (int, error) {
	if len(*s) == 0 {
		return 0, os.ErrClosed
	}
	next := (*s)[0]
	*s = (*s)[1:]
	if err, failed := next.(error); failed {
		return 0, &os.PathError{Op: "read", Path: "device events", Err: err}
	}
	return copy(message, fmt.Sprintf("add@/x\x00SUBSYSTEM=%s\x00", next)), nil
}

func TestForward(t *testing.T) {
	for name, tc := range map[string]struct {
		reads script
		want  int
	}{
		"events of other devices":       {reads: script{"net", "block"}},
		"events of PCI devices, merged": {reads: script{"net", "pci", "pci", "block"}, want: 1},
		"lost events, and later ones":   {reads: script{unix.ENOBUFS, "net", unix.ENOBUFS}, want: 1},
		"events after another error":    {reads: script{unix.EBADF, "pci"}},
	} {
		t.Run(name, func(t *testing.T) {
			changes := make(chan struct{}, 1)
			forward(&tc.reads, changes)
			NewWithT(t).Expect(changes).To(HaveLen(tc.want))
		})
	}
}

func TestChangesReportsThatThereIsNoSocket(t *testing.T) {
	g := NewWithT(t)
	var before unix.Rlimit
	g.Expect(unix.Getrlimit(unix.RLIMIT_NOFILE, &before)).To(Succeed())
	g.Expect(unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Max: before.Max})).To(Succeed())
	_, err := Changes(t.Context())
	g.Expect(unix.Setrlimit(unix.RLIMIT_NOFILE, &before)).To(Succeed())
	g.Expect(err).To(MatchError("open a socket for the kernel's device events: too many open files"))
}

func TestChangesEndsWithItsContext(t *testing.T) {
	g := NewWithT(t)
	before := openSockets(t)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Changes(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(openSockets(t)).To(Equal(before + 1))
	cancel()
	g.Eventually(func() int { return openSockets(t) }, time.Minute).Should(Equal(before))
}

func openSockets(t *testing.T) int {
	t.Helper()
	links, err := filepath.Glob("/proc/self/fd/*")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	count := 0
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && len(target) > 7 && target[:7] == "socket:" {
			count++
		}
	}
	return count
}
