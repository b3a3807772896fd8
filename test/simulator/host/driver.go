package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
	"github.com/clusterpolicy/gpu-operator/test/simulator/host/standin"
)

// modules are the kernel modules that the driver loads.
var modules = []string{"nvidia", "nvidia_uvm", "nvidia_modeset"}

// Major numbers of the driver's devices.
const (
	majorNvidia = 195
	majorUVM    = 511
)

// InstallDriver does what the driver container has done once its startup probe succeeds: its root is shared, the
// modules are loaded, and .driver-ctr-ready names the pod.
func (h *Host) InstallDriver(pod types.UID) error {
	if err := h.installDriver(driverRoot); err != nil {
		return fmt.Errorf("install the driver on node %s: %w", h.node, err)
	}
	ready := "GDRCOPY_ENABLED: false\nGDS_ENABLED: false\nGPU_DIRECT_RDMA_ENABLED: false\nDRIVER_INSTANCE: " +
		string(pod) + "\n"
	if err := h.write(driverReady, ready); err != nil {
		return fmt.Errorf("write .driver-ctr-ready on node %s: %w", h.node, err)
	}
	return nil
}

// ConfirmRuntime does what the startup probe of the toolkit does once the container runtime has restarted.
func (h *Host) ConfirmRuntime() error {
	markers := marker.Dir{Path: h.Path(labels.ValidationsDir), BootID: h.hardware.BootID}
	instance, err := markers.DriverInstance()
	if err == nil {
		err = markers.Write(labels.MarkerRuntime, nil, instance)
	}
	if err != nil {
		return fmt.Errorf("write runtime-ready on node %s: %w", h.node, err)
	}
	return nil
}

// StopDriver does what the driver container's preStop hook does.
func (h *Host) StopDriver() error {
	return errors.Join(os.RemoveAll(h.Path(driverReady)), os.RemoveAll(h.Path(driverDaemons)))
}

// UnmountDriver removes the driver container's root. Its modules stay loaded.
func (h *Host) UnmountDriver() error {
	if err := os.RemoveAll(h.Path(driverRoot)); err != nil {
		return fmt.Errorf("remove the driver's root on node %s: %w", h.node, err)
	}
	return nil
}

// ModulesLoaded reports whether the driver's kernel modules are loaded.
func (h *Host) ModulesLoaded() bool {
	_, err := os.Stat(h.Path("/sys/module/nvidia/refcnt"))
	return err == nil
}

// UnloadModules does what a driver container does at its end where no process uses a GPU.
func (h *Host) UnloadModules() error {
	var failures []error
	for _, module := range modules {
		failures = append(failures, os.RemoveAll(h.Path("/sys/module/"+module)))
	}
	if err := errors.Join(failures...); err != nil {
		return fmt.Errorf("unload the driver's modules on node %s: %w", h.node, err)
	}
	return nil
}

// SetSMI sets the exit code of every nvidia-smi of the machine; 0 is success.
func (h *Host) SetSMI(exitCode int) error {
	for _, root := range []string{"/", driverRoot} {
		smi := h.Path(filepath.Join(root, smiPath))
		if _, err := os.Stat(smi); err != nil {
			continue
		}
		if err := h.setPart(smi, exitCode); err != nil {
			return fmt.Errorf("set the exit code of nvidia-smi on node %s: %w", h.node, err)
		}
	}
	return nil
}

// installDriver installs a driver in a root of the machine and loads its modules.
func (h *Host) installDriver(root string) error {
	smi := h.Path(filepath.Join(root, smiPath))
	if err := os.MkdirAll(filepath.Dir(smi), 0o755); err != nil {
		return err
	}
	// No symbolic link: it would lead out of the driver's root.
	if err := os.Link(h.standIn(), smi); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := h.setPart(smi, 0); err != nil {
		return err
	}
	uvm, err := h.makeDevices(h.Path(filepath.Join(root, "dev")))
	if err != nil {
		return err
	}
	return h.loadModules(uvm)
}

// makeDevices creates the driver's device nodes and returns the major number of nvidia_uvm.
func (h *Host) makeDevices(dev string) (uvm uint32, err error) {
	if err := os.MkdirAll(dev, 0o755); err != nil {
		return 0, err
	}
	if _, err := makeDevice(filepath.Join(dev, "nvidiactl"), majorNvidia, 255); err != nil {
		return 0, err
	}
	for i := range h.hardware.GPUs {
		if _, err := makeDevice(filepath.Join(dev, "nvidia"+strconv.Itoa(i)), majorNvidia, uint32(i)); err != nil {
			return 0, err
		}
	}
	return makeDevice(filepath.Join(dev, "nvidia-uvm"), majorUVM, 0)
}

// makeDevice creates a device node that is never opened, or, without permission, a link to one that always exists. It
// returns its major number.
func makeDevice(path string, major, minor uint32) (uint32, error) {
	const null, majorNull = "/dev/null", 1
	if err := os.RemoveAll(path); err != nil {
		return 0, err
	}
	if err := syscall.Mknod(path, syscall.S_IFCHR|0o600, int(unix.Mkdev(major, minor))); err == nil {
		return major, nil
	}
	return majorNull, os.Symlink(null, path)
}

// loadModules makes the simulated kernel show the driver's modules and the GPUs that they serve.
func (h *Host) loadModules(majorUVM uint32) error {
	var list strings.Builder
	files := map[string]string{
		"/proc/devices": fmt.Sprintf("Character devices:\n  1 mem\n%[1]d nvidia\n%[1]d nvidiactl\n%d nvidia-uvm\n\nBlock "+
			"devices:\n",
			majorNvidia, majorUVM),
		"/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  " + standin.DriverVersion +
			"\n",
	}
	for _, module := range modules {
		fmt.Fprintf(&list, "%s 1048576 1 - Live 0x0000000000000000 (OE)\n", module)
		for file, content := range map[string]string{"refcnt": "1", "version": standin.DriverVersion, "initstate": "live"} {
			files["/sys/module/"+module+"/"+file] = content + "\n"
		}
	}
	files["/proc/modules"] = list.String()
	for i := range h.hardware.GPUs {
		files["/proc/driver/nvidia/gpus/"+standin.GPUAddress(i)+"/information"] = fmt.Sprintf(
			"Model: \t\t %s\nGPU UUID: \t %s\nDevice Minor: \t %d\nGPU Excluded:\t No\n", standin.Product, standin.GPUUUID(i), i)
		bound := h.Path(filepath.Join(pciDevices, standin.GPUAddress(i), "driver"))
		if err := os.Symlink("../../../../bus/pci/drivers/nvidia", bound); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	for path, content := range files {
		if err := h.write(path, content); err != nil {
			return err
		}
	}
	return nil
}
