package validate

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/kmod"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/pci"
)

// kernel reads the state of the node's kernel. A container sees the modules and the PCI devices of the node in its own
// /sys, and the NVIDIA driver's files in its own /proc.
type kernel struct{ sys, proc string }

// moduleVersion returns the version of the module nvidia; empty if it has none.
func (k kernel) moduleVersion() string { return kmod.Version(k.sys, kmod.Driver) }

// hasMellanoxNIC reports whether the node has a network adapter for the Mellanox driver.
func (k kernel) hasMellanoxNIC() (bool, error) {
	devices, err := pci.Devices(k.sys)
	// An error about one device does not hide another device.
	if slices.ContainsFunc(devices, pci.Device.IsMellanoxNIC) {
		return true, nil
	}
	return false, err
}

// driverGPU is a GPU in /proc/driver/nvidia/gpus.
type driverGPU struct {
	address string
	// minor is the number of the GPU's device node; empty if there is none.
	minor string
	// excluded is set if the administrator has excluded the GPU (NVreg_ExcludedGpus): no program sees it.
	excluded bool
}

// driverGPUs returns the GPUs of the driver; none if it lists none.
func (k kernel) driverGPUs() []driverGPU {
	files, err := filepath.Glob(filepath.Join(k.proc, "driver", "nvidia", "gpus", "*", "information"))
	if err != nil {
		return nil // The roots come from flags; one with a bracket matches nothing.
	}
	var gpus []driverGPU
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		found := driverGPU{address: filepath.Base(filepath.Dir(file))}
		for line := range strings.Lines(string(content)) {
			key, value, _ := strings.Cut(line, ":")
			value = strings.TrimSpace(value)
			switch key {
			case "Device Minor":
				if _, err := strconv.ParseUint(value, 10, 32); err == nil {
					found.minor = value
				}
			case "GPU Excluded":
				found.excluded = value == "Yes"
			}
		}
		gpus = append(gpus, found)
	}
	return gpus
}

// major returns the major number under which the kernel registered a character device, and whether it did.
func (k kernel) major(name string) (uint32, bool) {
	file, err := os.Open(filepath.Join(k.proc, "devices"))
	if err != nil {
		return 0, false
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if lines.Text() == "Block devices:" {
			break
		}
		if fields := strings.Fields(lines.Text()); len(fields) == 2 && fields[1] == name {
			number, err := strconv.ParseUint(fields[0], 10, 32)
			return uint32(number), err == nil
		}
	}
	return 0, false
}

// requireModule fails unless the module is loaded; remedy is appended to the sentence.
func (k kernel) requireModule(module, remedy string) error {
	if kmod.Loaded(k.sys, module) {
		return nil
	}
	return fmt.Errorf("the kernel module %s is not loaded; %s", module, remedy)
}
