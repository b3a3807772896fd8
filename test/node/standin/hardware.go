//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// machineDir is where the machine has the files that replace the kernel's, below their own paths. The orders are next
// to it.
const (
	machineDir    = "/run/machine/kernel"
	machineOrders = "/run/machine/orders"
	machineRunc   = "/opt/node/bin/runc"
	machineHook   = "/opt/node/machine/show-hardware"
)

// kernelFiles are mounted in every container: the machine's hardware, its boot ID and its kernel log.
var kernelFiles = []string{
	"/sys/bus/pci/devices", "/sys/module", "/proc/devices", "/proc/driver", "/proc/sys/kernel/random/boot_id", "/dev/kmsg",
}

// runWithHardware is runc, which adds the machine's hardware and the orders to each container, and records when it
// starts one.
func runWithHardware(args []string) error {
	if err := writeDown(args); err != nil {
		return err
	}
	if bundle := bundleOf(args); bundle != "" {
		if err := edit(bundle, addHardware); err != nil {
			return err
		}
	}
	return unix.Exec(machineRunc, append([]string{"runc"}, args...), os.Environ())
}

// bundleOf returns the folder of the container that is being created; empty if none is.
func bundleOf(args []string) string {
	makes := false
	bundle := ""
	for i, arg := range args {
		switch {
		case arg == "create" || arg == "run":
			makes = true
		case arg == "--bundle" && i+1 < len(args):
			bundle = args[i+1]
		}
	}
	if !makes {
		return ""
	}
	return bundle
}

// spec is the configuration of a container, see the OCI runtime specification.
type spec map[string]any

// edit changes the configuration of a container that is about to be created.
func edit(bundle string, change func(spec) error) error {
	path := filepath.Join(bundle, "config.json")
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var s spec
	if err := json.Unmarshal(content, &s); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	if err := change(s); err != nil {
		return err
	}
	if content, err = json.Marshal(s); err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o600)
}

// section returns a part of a configuration, which is created if it is missing.
func (s spec) section(name string) spec {
	part, ok := s[name].(map[string]any)
	if !ok {
		part = map[string]any{}
		s[name] = part
	}
	return part
}

// add appends to a list of a configuration.
func (s spec) add(name string, values ...any) {
	list, _ := s[name].([]any)
	s[name] = append(list, values...)
}

// mount adds a mount of a file or folder of the machine.
func (s spec) mount(source, at string) {
	s.add("mounts", map[string]any{
		"destination": at, "source": source, "type": "bind", "options": []string{"rbind", "ro", "rprivate"},
	})
}

func addHardware(s spec) error {
	s.section("hooks").add("createContainer", map[string]any{"path": machineHook, "args": []string{machineHook}})
	s.mount(machineOrders, ordersDir)
	for _, name := range driverFiles {
		path := filepath.Join(machineOrders, name)
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		s.mount(path, filepath.Join(libraryDir(), name))
	}
	return nil
}

// driverFiles are the files beside the driver's libraries that say what these play, see package fakegpu. A machine that
// has them among its orders shows them to each container, whatever injects the libraries.
var driverFiles = []string{"FAKE_GPUS", "FAKE_MODEL", "FAKE_NVML", "FAKE_STATE", "FAKE_XID"}

// showHardware is the hook that runs in a container's mount namespace before the container enters it. runc itself
// refuses mounts in /proc.
func showHardware([]string) error {
	var state struct{ Bundle string }
	if err := json.NewDecoder(os.Stdin).Decode(&state); err != nil {
		return fmt.Errorf("read the container's state: %w", err)
	}
	root, err := rootOf(state.Bundle)
	if err != nil {
		return err
	}
	for _, path := range kernelFiles {
		target := filepath.Join(root, path)
		if _, err := os.Stat(target); errors.Is(err, fs.ErrNotExist) {
			continue // A container without /sys, or without the kernel log.
		}
		if err := unix.Mount(filepath.Join(machineDir, path), target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("show %s: %w", path, err)
		}
	}
	return nil
}

// concatenate is cat on the machine. In /proc/modules, which not every kernel has, it finds the machine's modules; the
// runtime of the toolkit looks there whether the driver is loaded.
func concatenate(args []string) error {
	const cat = "/bin/cat"
	if !slices.Equal(args, []string{modulesFile}) {
		return unix.Exec(cat, append([]string{cat}, args...), os.Environ())
	}
	text, err := loadedModules(machineDir)
	fmt.Print(text)
	return err
}

func rootOf(bundle string) (string, error) {
	content, err := os.ReadFile(filepath.Join(bundle, "config.json"))
	if err != nil {
		return "", err
	}
	var config struct{ Root struct{ Path string } }
	if err := json.Unmarshal(content, &config); err != nil {
		return "", err
	}
	if filepath.IsAbs(config.Root.Path) {
		return config.Root.Path, nil
	}
	return filepath.Join(bundle, config.Root.Path), nil
}

const pciDevices = "/sys/bus/pci/devices"

// gpuAddresses returns the addresses of NVIDIA's 3D controllers on the machine's bus.
func gpuAddresses() ([]string, error) {
	entries, err := os.ReadDir(pciDevices)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, entry := range entries {
		vendor, err := os.ReadFile(filepath.Join(pciDevices, entry.Name(), "vendor"))
		if err != nil {
			return nil, err
		}
		class, err := os.ReadFile(filepath.Join(pciDevices, entry.Name(), "class"))
		if err != nil {
			return nil, err
		}
		if strings.TrimSpace(string(vendor)) == "0x10de" && strings.HasPrefix(string(class), "0x0302") {
			found = append(found, entry.Name())
		}
	}
	return found, nil
}

// gpuUUID returns the UUID of a GPU by its number.
func gpuUUID(index int) string { return fmt.Sprintf("GPU-00000000-0000-4000-8000-%012d", index) }

// gpusIn returns the numbers of the GPUs whose device nodes are in a folder.
func gpusIn(dev string) ([]int, error) {
	entries, err := os.ReadDir(dev)
	if err != nil {
		return nil, err
	}
	var found []int
	for _, entry := range entries {
		if number, isGPU := strings.CutPrefix(entry.Name(), "nvidia"); isGPU {
			if index, err := strconv.Atoi(number); err == nil {
				found = append(found, index)
			}
		}
	}
	return found, nil
}
