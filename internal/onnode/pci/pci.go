package pci

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Vendors, as the PCI-SIG numbers them.
const (
	NVIDIA   = 0x10de
	Mellanox = 0x15b3
)

// Classes: class and subclass of a device.
const (
	Ethernet     = 0x0200
	InfiniBand   = 0x0207
	VGA          = 0x0300
	ThreeD       = 0x0302
	maxAttribute = 64 // Bytes; an attribute that is read here has 9.
)

// Device is a PCI device as sysfs shows it.
type Device struct {
	// Address is its name on the bus, such as 0000:3b:00.0.
	Address string
	Vendor  uint16
	// Class is the class and the subclass, without the programming interface.
	Class uint16
	// Driver is the kernel driver that the device is bound to, such as nvidia or vfio-pci; empty for none.
	Driver string
}

// IsGPU reports whether the device is an NVIDIA GPU: a VGA or a 3D controller. A passed-through GPU, a virtual
// function and a vGPU are; an NVSwitch (a bridge) and the audio function of a GPU are not.
func (d Device) IsGPU() bool { return d.Vendor == NVIDIA && (d.Class == VGA || d.Class == ThreeD) }

// IsMellanoxNIC reports whether the device is a Mellanox network adapter.
func (d Device) IsMellanoxNIC() bool {
	return d.Vendor == Mellanox && (d.Class == Ethernet || d.Class == InfiniBand)
}

// unreadable is a device that cannot be read. Its address and its driver are known all the same.
type unreadable struct {
	device Device
	err    error
}

// Devices returns the devices on the PCI buses of the node, whose sysfs is mounted at sysRoot. A node whose kernel
// has no PCI has none. A device that cannot be read is left out, and the error names it; the other devices are
// returned together with the error.
func Devices(sysRoot string) ([]Device, error) {
	devices, failed, err := list(sysRoot)
	if err != nil {
		return nil, err
	}
	return devices, summary(failed)
}

// list returns the devices that can be read and those that cannot.
func list(sysRoot string) ([]Device, []unreadable, error) {
	dir := filepath.Join(sysRoot, "bus", "pci", "devices")
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if _, busErr := os.Stat(filepath.Join(sysRoot, "bus")); busErr == nil {
			return nil, nil, nil
		}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("the PCI devices cannot be listed; is sysfs mounted at %s? %w", sysRoot, err)
	}
	devices := make([]Device, 0, len(entries))
	var failed []unreadable
	for _, entry := range entries {
		device, err := read(filepath.Join(dir, entry.Name()))
		if err == nil {
			devices = append(devices, device)
		} else if _, gone := os.Stat(filepath.Join(dir, entry.Name())); gone == nil {
			// Not an error if the device was removed meanwhile.
			failed = append(failed, unreadable{device: device, err: err})
		}
	}
	return devices, failed, nil
}

// summary returns the error about the devices that cannot be read; nil if there are none.
func summary(failed []unreadable) error {
	switch len(failed) {
	case 0:
		return nil
	case 1:
		return failed[0].err
	default:
		return fmt.Errorf("%w (and %d more devices)", failed[0].err, len(failed)-1)
	}
}

// nvidiaDriver is the kernel driver of GPUs that are used on the node itself.
const nvidiaDriver = "nvidia"

// BoundGPUs returns the addresses of the GPUs that are bound to the driver nvidia. A GPU that is bound to vfio-pci for
// a virtual machine does not count, nor does the virtual function of a GPU. A device of this driver that cannot be read
// is left out, and the error names it; the other GPUs are returned together with the error. Other devices that cannot
// be read do not matter.
func BoundGPUs(sysRoot string) ([]string, error) {
	devices, failed, err := list(sysRoot)
	if err != nil {
		return nil, err
	}
	var addresses []string
	for _, device := range devices {
		if !device.IsGPU() || device.Driver != nvidiaDriver {
			continue
		}
		if _, err := os.Lstat(filepath.Join(sysRoot, "bus", "pci", "devices", device.Address, "physfn")); err == nil {
			continue
		}
		addresses = append(addresses, device.Address)
	}
	failed = slices.DeleteFunc(failed, func(u unreadable) bool { return u.device.Driver != nvidiaDriver })
	return addresses, summary(failed)
}

// read reads the device. If that fails, the address and the driver are returned together with the error.
func read(dir string) (Device, error) {
	device := Device{Address: filepath.Base(dir)}
	// The link does not exist while no driver is bound.
	if driver, err := os.Readlink(filepath.Join(dir, "driver")); err == nil {
		device.Driver = filepath.Base(driver)
	}
	vendor, err := attribute(filepath.Join(dir, "vendor"), 16)
	if err != nil {
		return device, err
	}
	class, err := attribute(filepath.Join(dir, "class"), 24)
	if err != nil {
		return device, err
	}
	device.Vendor, device.Class = uint16(vendor), uint16(class>>8)
	return device, nil
}

// attribute reads a number of at most that many bits.
func attribute(path string, bits int) (uint64, error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, fmt.Errorf("a PCI device cannot be read: %w", err)
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxAttribute))
	if err != nil {
		return 0, fmt.Errorf("a PCI device cannot be read: %w", err)
	}
	number, ok := parse(string(content), bits)
	if !ok {
		return 0, fmt.Errorf("a PCI device cannot be read: %s is %q, not a number of %d bits", path, content, bits)
	}
	return number, nil
}

// parse reads a number as the kernel prints it: 0x10de and a line break.
func parse(content string, bits int) (uint64, bool) {
	digits, ok := strings.CutPrefix(strings.TrimSuffix(content, "\n"), "0x")
	if !ok {
		return 0, false
	}
	number, err := strconv.ParseUint(digits, 16, bits)
	return number, err == nil
}
