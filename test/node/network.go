//go:build linux

package node

import (
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// Address is the address of the machine and of the API server, which share the network of the run.
var Address = netip.AddrFrom4([4]byte{192, 168, 77, 1})

// setUpNetwork makes an empty network usable: the loopback interface is up and also has the machine's address and the
// range of the Services. All connections to Services end up at this computer, see Services.
func setUpNetwork() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("set up the network: %w", err)
	}
	defer func() { _ = unix.Close(socket) }()
	up, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	up.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, up); err != nil {
		return fmt.Errorf("set up the network: %w", err)
	}
	services := netip.PrefixFrom(cluster.ServiceRange.Addr().Next(), cluster.ServiceRange.Bits())
	for name, prefix := range map[string]netip.Prefix{"lo:node": netip.PrefixFrom(Address, 32), "lo:services": services} {
		if err := addAddress(socket, name, prefix); err != nil {
			return fmt.Errorf("give the network the address %s: %w", prefix, err)
		}
	}
	return nil
}

// addAddress adds an address to an interface. On the loopback interface the whole range becomes this computer's.
func addAddress(socket int, name string, prefix netip.Prefix) error {
	mask := net.CIDRMask(prefix.Bits(), 32)
	for _, set := range []struct {
		request uint
		value   []byte
	}{{unix.SIOCSIFADDR, prefix.Addr().AsSlice()}, {unix.SIOCSIFNETMASK, mask}} {
		request, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		if err := request.SetInet4Addr(set.value); err != nil {
			return err
		}
		if err := unix.IoctlIfreq(socket, set.request, request); err != nil {
			return err
		}
	}
	return nil
}
