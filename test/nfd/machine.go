package nfd

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Device is a PCI device.
type Device struct {
	// Vendor and Class as in sysfs, such as 0x10de and 0x030200.
	Vendor, Class string
	// Driver is the kernel driver that it is bound to; empty for none.
	Driver string
}

// Devices of machines: GPUs as sysfs shows them, and what is beside them.
var (
	T4          = Device{Vendor: "0x10de", Class: "0x030200", Driver: "nvidia"}
	H100        = T4
	Workstation = Device{Vendor: "0x10de", Class: "0x030000", Driver: "nvidia"}
	Passthrough = Device{Vendor: "0x10de", Class: "0x030200", Driver: "vfio-pci"}
	AudioOfGPU  = Device{Vendor: "0x10de", Class: "0x040300", Driver: "snd_hda_intel"}
	NVSwitch    = Device{Vendor: "0x10de", Class: "0x068000", Driver: "nvidia"}
	ConnectX    = Device{Vendor: "0x15b3", Class: "0x020700", Driver: "mlx5_core"}
	Bridge      = Device{Vendor: "0x8086", Class: "0x060000"}
	Ethernet    = Device{Vendor: "0x8086", Class: "0x020000", Driver: "ice"}
)

// NewMachine writes the root file system of a node into a folder: /etc/os-release with its content, and the devices in
// /sys. Kernel and CPU are those of the machine that the test runs on.
func NewMachine(root, osRelease string, devices ...Device) error {
	files := map[string]string{"etc/os-release": osRelease, "sys/bus/pci/drivers/.keep": ""}
	for i, device := range devices {
		of := fmt.Sprintf("sys/bus/pci/devices/0000:%02x:00.0/", i)
		files[of+"vendor"], files[of+"class"] = device.Vendor+"\n", device.Class+"\n"
		for _, name := range []string{"device", "subsystem_vendor", "subsystem_device"} {
			files[of+name] = "0x1234\n"
		}
	}
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("make the machine: %w", err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return fmt.Errorf("make the machine: %w", err)
		}
	}
	for i, device := range devices {
		if device.Driver == "" {
			continue
		}
		link := filepath.Join(root, fmt.Sprintf("sys/bus/pci/devices/0000:%02x:00.0/driver", i))
		if err := os.Symlink("../../drivers/"+device.Driver, link); err != nil {
			return fmt.Errorf("bind a device: %w", err)
		}
	}
	return nil
}

// OSRelease returns the content of an os-release file.
func OSRelease(id, version string, further ...string) string {
	return fmt.Sprintf("ID=%s\nVERSION_ID=%q\n%s\n", id, version, strings.Join(further, "\n"))
}
