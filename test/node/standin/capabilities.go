//go:build linux

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// The capabilities of MIG devices: the driver has a device node for the access to each instance, whose numbers are in
// minorsFile. The nodes are made for instances that exist.
const (
	majorCapabilities = 235
	capabilityDir     = "/dev/nvidia-caps"
	minorsFile        = "/proc/driver/nvidia-caps/mig-minors"
	// instancesFile is where libnvidia-ml.so.1 of package fakegpu has the instances, if a machine lets it have them there.
	instancesFile = "/proc/driver/nvidia/FAKE_MIG"
	// firstMinor is the number of the first instance; those before it are for the whole of MIG. A GPU has gpuInstances at
	// most, each with computeInstances.
	firstMinor, gpuInstances, computeInstances = 3, 15, 8
)

// minorOf returns the number of a GPU instance, and of its compute instance if that is not below 0.
func minorOf(gpu, instance, compute int) int {
	return firstMinor + (gpu*gpuInstances+instance)*(1+computeInstances) + 1 + compute
}

// minors returns the content of minorsFile.
func minors(gpus int) string {
	var text strings.Builder
	text.WriteString("config 1\nmonitor 2\n")
	for gpu := range gpus {
		for instance := range gpuInstances {
			path := fmt.Sprintf("gpu%d/gi%d", gpu, instance)
			fmt.Fprintf(&text, "%s/access %d\n", path, minorOf(gpu, instance, -1))
			for compute := range computeInstances {
				fmt.Fprintf(&text, "%s/ci%d/access %d\n", path, compute, minorOf(gpu, instance, compute))
			}
		}
	}
	return text.String()
}

// makeCapabilities makes the device nodes of the instances that exist, as nvidia-smi does. In the driver's root, which
// has no /proc, it makes those of all that can exist.
func makeCapabilities(gpus int) error {
	made, err := existing()
	if _, noProc := os.Stat("/proc/self"); noProc != nil {
		made, err = nil, nil
		for minor := range minorOf(gpus, 0, -1) {
			made = append(made, minor)
		}
	}
	if err != nil || len(made) == 0 {
		return err
	}
	if err := os.MkdirAll(capabilityDir, 0o755); err != nil {
		return err
	}
	for _, minor := range made {
		path := filepath.Join(capabilityDir, fmt.Sprintf("nvidia-cap%d", minor))
		number := unix.Mkdev(majorCapabilities, uint32(minor))
		if err := unix.Mknod(path, unix.S_IFCHR|0o444, int(number)); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make the device node %s: %w", path, err)
		}
	}
	return nil
}

// existing returns the numbers of the instances that exist.
func existing() ([]int, error) {
	content, err := os.ReadFile(instancesFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var found []int
	instances := map[int][]int{}
	for line := range strings.Lines(string(content)) {
		var gpu, id, of int
		if n, _ := fmt.Sscanf(line, "gpu %d %d", &gpu, &id); n == 2 {
			instances[gpu] = append(instances[gpu], id)
			found = append(found, minorOf(gpu, id, -1))
		} else if n, _ := fmt.Sscanf(line, "compute %d %d %d", &gpu, &of, &id); n == 3 && of < len(instances[gpu]) {
			found = append(found, minorOf(gpu, instances[gpu][of], id))
		}
	}
	return found, err
}
