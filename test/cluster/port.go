package cluster

import (
	"fmt"
	"net"
	"net/netip"

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

// FreeAddress returns a loopback address that no process listens on at the moment.
func FreeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find free port: %w", err)
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}
