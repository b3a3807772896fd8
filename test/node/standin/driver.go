//go:build linux

package main

import (
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

const (
	driverProduct = "NVIDIA H100 80GB HBM3"
	// driverRoot is where the driver container mounts its root file system on the host.
	driverRoot = "/run/nvidia/driver"
	// driverState has the digest of what is loaded.
	driverState   = "/run/nvidia/nvidia-driver.state"
	driverDaemons = "/run/nvidia/validations/.driver-daemons-status"
	moduleDir     = "/sys/module"

	majorNvidia = 195
	majorUVM    = 511
)

// driverVersion is the version of the driver's image; NVIDIA's images have this variable.
func driverVersion() string { return os.Getenv("DRIVER_VERSION") }

// moduleVersion returns the version of the module in the kernel, whose files are below root.
func moduleVersion(root string) (string, error) {
	content, err := os.ReadFile(filepath.Join(root, moduleDir, "nvidia", "version"))
	return strings.TrimSpace(string(content)), err
}

// loadedVersion returns the version of the modules in the kernel. In the driver's root, which has none of the kernel's
// files, it returns that of the library there.
func loadedVersion() string {
	if version, err := moduleVersion("/"); err == nil {
		return version
	}
	const library = "libcuda.so."
	found, _ := filepath.Glob(filepath.Join(libraryDir(), library+"*.*"))
	if len(found) == 0 {
		return ""
	}
	return strings.TrimPrefix(filepath.Base(found[0]), library)
}

// modules are the driver's modules, in the order of unloading.
var modules = []string{"nvidia_modeset", "nvidia_uvm", "nvidia"}

// driver is the driver container: it loads the modules, mounts its root on the host and waits.
func driver(args []string) error {
	if !slices.Contains(args, "init") {
		return fmt.Errorf("nvidia-driver is played with init alone, not with %q", args)
	}
	err := errors.Join(os.MkdirAll(filepath.Dir(driverDaemons), 0o755),
		os.WriteFile(driverDaemons, []byte("NotReady\n"), 0o644))
	if err != nil {
		return err
	}
	if err := loadHostDriver(); err != nil {
		return err
	}
	if err := os.WriteFile(driverState, []byte(os.Getenv("DRIVER_CONFIG_DIGEST")), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(driverDaemons, []byte("Ready\n"), 0o644); err != nil {
		return err
	}
	signals := ended()
	if err := showRoot(); err != nil {
		return fmt.Errorf("show the driver's root: %w", err)
	}
	fmt.Println("the driver runs")
	<-signals
	return unmountRoot()
}

// loadHostDriver loads the driver of a machine that has one itself.
func loadHostDriver() error {
	if err := loadModules(); err != nil {
		return fmt.Errorf("load the modules: %w", err)
	}
	if err := makeDevices(); err != nil {
		return fmt.Errorf("make the device nodes: %w", err)
	}
	return nil
}

// loadModules makes the files of the kernel show the modules and their GPUs.
func loadModules() error {
	addresses, err := gpuAddresses()
	if err != nil {
		return err
	}
	files := map[string]string{
		"/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  " + driverVersion() + "\n",
		"/proc/devices": fmt.Sprintf(
			"Character devices:\n  1 mem\n%[1]d nvidia\n%[1]d nvidiactl\n%d nvidia-caps\n%d nvidia-uvm\n\nBlock devices:\n",
			majorNvidia, majorCapabilities, majorUVM),
		minorsFile: minors(len(addresses)),
	}
	for i, address := range addresses {
		files["/proc/driver/nvidia/gpus/"+address+"/information"] = fmt.Sprintf(
			"Model: \t\t %s\nGPU UUID: \t %s\nDevice Minor: \t %d\nGPU Excluded:\t No\n", driverProduct, gpuUUID(i), i)
		bound := filepath.Join(pciDevices, address, "driver")
		if err := os.Symlink("../../../../bus/pci/drivers/nvidia", bound); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	for path, content := range files {
		if err := write(path, content); err != nil {
			return err
		}
	}
	for _, module := range slices.Backward(modules) {
		for _, file := range [][2]string{{"version", driverVersion()}, {"refcnt", "0"}, {"initstate", "live"}} {
			if err := write(filepath.Join(moduleDir, module, file[0]), file[1]+"\n"); err != nil {
				return err
			}
		}
	}
	return nil
}

// modulesLoaded reports whether the driver is loaded.
func modulesLoaded() bool {
	_, err := os.Stat(filepath.Join(moduleDir, "nvidia", "refcnt"))
	return err == nil
}

func unloadModules() error {
	var failures []error
	for _, module := range modules {
		failures = append(failures, os.RemoveAll(filepath.Join(moduleDir, module)))
	}
	bound, err := filepath.Glob(filepath.Join(pciDevices, "*", "driver"))
	for _, path := range bound {
		failures = append(failures, os.Remove(path))
	}
	return errors.Join(append(failures, err, os.RemoveAll("/proc/driver/nvidia"),
		os.RemoveAll(filepath.Dir(minorsFile)))...)
}

// write writes a file in place, because it may be mounted elsewhere.
func write(path, content string) error {
	return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644))
}

func makeDevices() error {
	addresses, err := gpuAddresses()
	if err != nil {
		return err
	}
	nodes := map[string]uint64{
		"nvidiactl": unix.Mkdev(majorNvidia, 255), "nvidia-uvm": unix.Mkdev(majorUVM, 0),
	}
	for i := range addresses {
		nodes["nvidia"+strconv.Itoa(i)] = unix.Mkdev(majorNvidia, uint32(i))
	}
	for name, number := range nodes {
		path := filepath.Join("/dev", name)
		if err := unix.Mknod(path, unix.S_IFCHR|0o666, int(number)); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

// showRoot mounts this container's root on the host, without the kernel's own file systems, which the host has already.
func showRoot() error {
	if err := os.MkdirAll(driverRoot, 0o755); err != nil {
		return err
	}
	for _, dir := range []string{"/sys", "/proc"} {
		if err := unix.Mount("", dir, "", unix.MS_UNBINDABLE, ""); err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
	}
	return unix.Mount("/", driverRoot, "", unix.MS_BIND|unix.MS_REC, "")
}

// unmountRoot unmounts the driver's root on the host, however often it is mounted there.
func unmountRoot() error {
	for {
		err := unix.Unmount(driverRoot, unix.MNT_DETACH)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("unmount %s: %w", driverRoot, err)
		}
	}
}

// smi is nvidia-smi: it lists the GPUs whose device nodes it finds, or sets the compute mode of one. First it makes the
// device nodes of MIG devices.
func smi(args []string) error {
	if _, err := os.Stat("/dev/nvidiactl"); err != nil {
		fmt.Println("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.")
		os.Exit(9)
	}
	gpus, err := gpusIn("/dev")
	if err != nil {
		return err
	}
	if len(gpus) == 0 {
		fmt.Println("No devices were found")
		os.Exit(6)
	}
	if err := makeCapabilities(len(gpus)); err != nil {
		return err
	}
	if mode := slices.Index(args, "-c"); mode >= 0 && mode+1 < len(args) {
		return write(computeModeFile, args[mode+1])
	}
	for _, arg := range args {
		if fields, ok := strings.CutPrefix(arg, "--query-gpu="); ok {
			return query(gpus, strings.Split(fields, ","))
		}
	}
	if !slices.Contains(args, "-L") {
		fmt.Printf("| NVIDIA-SMI %s | GPUs: %d |\n", loadedVersion(), len(gpus))
		return nil
	}
	for i, gpu := range gpus {
		fmt.Printf("GPU %d: %s (UUID: %s)\n", i, driverProduct, gpuUUID(gpu))
	}
	return nil
}

// query prints one line for each GPU, in the form of --format=csv,noheader.
func query(gpus []int, fields []string) error {
	for i, gpu := range gpus {
		values := map[string]string{
			"index": strconv.Itoa(i), "name": driverProduct, "uuid": gpuUUID(gpu), "driver_version": loadedVersion(),
			"pci.bus_id": fmt.Sprintf("00000000:%02X:00.0", 0x07+gpu), "mig.mode.current": "Disabled",
		}
		var line []string
		for _, field := range fields {
			value, known := values[field]
			if !known {
				return fmt.Errorf("the field %s is not played", field)
			}
			line = append(line, value)
		}
		fmt.Println(strings.Join(line, ", "))
	}
	return nil
}
