package cluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// reservedPort is a port of one address that is bound but not listened on: no other program gets it, while a server
// with SO_REUSEPORT can still listen on it, also after a restart.
type reservedPort struct {
	at     netip.Addr
	number uint16
	fd     int
}

func reservePort(at netip.Addr) (*reservedPort, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("reserve port: %w", err)
	}
	port := &reservedPort{at: at, fd: fd}
	if err := port.bind(); err != nil {
		port.release()
		return nil, fmt.Errorf("reserve port: %w", err)
	}
	return port, nil
}

func (p *reservedPort) bind() error {
	if err := unix.SetsockoptInt(p.fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return err
	}
	if err := unix.Bind(p.fd, &unix.SockaddrInet4{Addr: p.at.As4()}); err != nil {
		return err
	}
	name, err := unix.Getsockname(p.fd)
	if err != nil {
		return err
	}
	address, ok := name.(*unix.SockaddrInet4)
	if !ok {
		return fmt.Errorf("the socket has an address of type %T", name)
	}
	p.number = uint16(address.Port)
	return nil
}

func (p *reservedPort) address() netip.AddrPort { return netip.AddrPortFrom(p.at, p.number) }

func (p *reservedPort) release() { _ = unix.Close(p.fd) }

// FreeAddress returns a loopback address that no process listens on, as claimAddress does. No other test gets it before
// this process ends.
func FreeAddress() (string, error) {
	address, _, err := claimAddress()
	return address, err
}

// The ports of claimAddress are below the range from which Linux takes those of outgoing connections.
const firstFreePort, freePorts = 20000, 12000

// claimAddress returns a loopback address that no process listens on. No other test gets it before release, and the
// kernel gives its port to no outgoing connection: otherwise either could take it before the server that it is for
// listens.
func claimAddress() (address string, release func(), err error) {
	claims := filepath.Join(os.TempDir(), fmt.Sprintf("gpu-operator-ports-%d", os.Getuid()))
	if err := os.MkdirAll(claims, 0o755); err != nil {
		return "", nil, fmt.Errorf("make the folder for claims of ports: %w", err)
	}
	for range freePorts {
		port := strconv.Itoa(firstFreePort + rand.IntN(freePorts)) //nolint:gosec // Nothing secret.
		fd, claimed := claim(filepath.Join(claims, port))
		if !claimed {
			continue
		}
		release := func() { _ = unix.Close(fd) }
		if address := net.JoinHostPort(loopback.String(), port); canListen(address) {
			return address, release, nil
		}
		release()
	}
	return "", nil, errors.New("find a free port: all are in use")
}

// claim takes the lock of a file, unless it is taken. It lasts until the descriptor is closed, or the process ends: a
// plain number, unlike an os.File, is not closed when nothing refers to it.
func claim(path string) (fd int, claimed bool) {
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return 0, false
	}
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = unix.Close(fd)
		return 0, false
	}
	return fd, true
}

func canListen(address string) bool {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return false
	}
	return listener.Close() == nil
}
