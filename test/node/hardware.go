//go:build linux

package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/clusterpolicy/gpu-operator/test/simulator/host"
)

const (
	// machineDir contains the machine's stand-in and the names by which the machine itself starts it.
	machineDir = "/opt/node/machine"
	standIn    = "/opt/node/stand-in"
	// ordersOnDisk is where the orders are written, ordersShown where the stand-in reads them.
	ordersOnDisk = "/var/lib/stand-in-orders"
	ordersShown  = "/run/machine/orders"
	// pciAddress is the address of the first GPU; the others follow. Package fakegpu has the same.
	pciAddress = 0x07
)

// shown are the files and folders that replace the kernel's in every container. They are new at each boot, when no
// driver is loaded. A driver that is loaded writes to them.
func shown(gpus int, pciDevice string) map[string]string {
	files := map[string]string{
		"/proc/devices": "Character devices:\n  1 mem\n\nBlock devices:\n",
		bootIDFile:      newID() + "\n",
		"/sys/module/firmware_class/parameters/path": "\n",
	}
	for i := range gpus {
		device := fmt.Sprintf("/sys/bus/pci/devices/0000:%02x:00.0/", pciAddress+i)
		files[device+"vendor"], files[device+"device"], files[device+"class"] = "0x10de\n", "0x"+pciDevice+"\n", "0x030200\n"
		files[device+"subsystem_vendor"], files[device+"subsystem_device"] = "0x10de\n", "0x16c1\n"
		// Without capabilities, such as that of a GPU of a virtual machine.
		files[device+"config"] = string(make([]byte, 256))
		files[device+"numa_node"], files[device+"resource"] = "-1\n", "0x0 0x0 0x0\n"
		files[device+"uevent"] = "PCI_CLASS=30200\nPCI_ID=10DE:" + strings.ToUpper(pciDevice) + "\n"
	}
	return files
}

// places are where these files are mounted. The stand-in has the same list.
var places = []string{"/sys/bus/pci/devices", "/sys/module", "/proc/devices", "/proc/driver", bootIDFile}

// showHardware mounts the machine's files over those of the kernel, for programs that run outside containers. A machine
// with the driver of this computer has the kernel's own.
func (d description) showHardware() error {
	if d.HostDriver.isReal() {
		return bind(ordersOnDisk, ordersShown, 0)
	}
	for _, dir := range []string{"/sys/bus/pci/devices", "/sys/module", "/proc/driver"} {
		if err := os.MkdirAll(filepath.Join(hidden, dir), 0o755); err != nil {
			return err
		}
	}
	for path, content := range shown(d.GPUs, d.Device) {
		file := filepath.Join(hidden, path)
		err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(content), 0o644))
		if err != nil {
			return err
		}
	}
	for _, place := range places {
		if err := bind(filepath.Join(hidden, place), place, 0); err != nil {
			return err
		}
	}
	// It stays open as long as this process runs.
	_, err := host.MakeKernelLog(kernelLog)
	return errors.Join(err, bind(ordersOnDisk, ordersShown, 0))
}

// kernelLog replaces the device of the kernel log in containers.
const kernelLog = hidden + "/dev/kmsg"

// ShowDriverFile shows the file of that name beside the driver's libraries in each container, see package fakegpu.
// Containers that run already see new content of a file that they have.
func (m *Machine) ShowDriverFile(name, content string) error {
	return os.WriteFile(m.Path(filepath.Join(ordersOnDisk, name)), []byte(content), 0o644)
}

// InstallContainerd puts containerd where a host has it, for the toolkit, which runs it to read its configuration.
func (m *Machine) InstallContainerd() error {
	const dir = "/var/local/usr/bin"
	return errors.Join(os.MkdirAll(m.Path(dir), 0o755),
		os.Symlink(programDir+"/containerd", m.Path(dir+"/containerd")))
}

// LogKernel writes a line to the kernel log that containers read, as the kernel or as a program: see the facilities of
// package host.
func (m *Machine) LogKernel(facility int, text string) error {
	m.logged++
	return host.WriteKernelLog(m.Running(kernelLog), m.logged, facility, text)
}

// installStandIn writes the stand-in to the disk, with the names by which the machine starts it.
func (m *Machine) installStandIn() error {
	if err := errors.Join(copyFile(m.options.StandIn, m.Path(standIn)),
		os.MkdirAll(m.Path(machineDir), 0o755), os.MkdirAll(m.Path(ordersOnDisk), 0o755)); err != nil {
		return err
	}
	if m.options.HostDriver.isReal() {
		// Nothing is played in its containers.
		return os.Symlink(programDir+"/runc", m.Path(filepath.Join(machineDir, "runc")))
	}
	for _, name := range []string{"runc", "show-hardware", "cat", loadDriver} {
		if err := os.Symlink("../stand-in", m.Path(filepath.Join(machineDir, name))); err != nil {
			return err
		}
	}
	return nil
}

// Order is how a test makes a program that the stand-in plays behave, each time that it starts.
type Order struct {
	// Delay is how long it takes before it does anything, with a unit; RandomDelay adds up to that.
	Delay, RandomDelay string
	// Fault is exit, hang or memory: it ends with an error, does nothing until the order is withdrawn, or
	// uses all memory.
	Fault string
	// Message is what it prints when it exits, Code the exit code; 0 means 1.
	Message string
	Code    int
}

// Order gives an order to the program of this name; nil withdraws it.
func (m *Machine) Order(program string, order *Order) error {
	path := m.Path(filepath.Join(ordersOnDisk, program+".json"))
	if order == nil {
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	content, err := json.Marshal(order)
	if err != nil {
		return err
	}
	// Renamed, so that no reader sees a part of it.
	return errors.Join(os.WriteFile(path+".new", content, 0o644), os.Rename(path+".new", path))
}
