package host

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterpolicy/gpu-operator/test/simulator/host/standin"
)

// Where NVIDIA's parts keep what gpu-node reads. Written down here rather than taken from the
// program's packages, so that a mistake there does not hide itself.
const (
	driverRoot     = "/run/nvidia/driver"
	validationsDir = "/run/nvidia/validations"
	driverReady    = validationsDir + "/.driver-ctr-ready"
	driverDaemons  = validationsDir + "/.driver-daemons-status"
	smiPath        = "/usr/bin/" + standin.SMI
)

// modules are what the driver loads.
var modules = []string{"nvidia", "nvidia_uvm", "nvidia_modeset"}

// install fills the root file system of a machine that has just been booted.
func (h *Host) install() error {
	hw := h.hardware
	files := map[string]string{
		"/etc/os-release":                   fmt.Sprintf("ID=%s\nVERSION_ID=%q\n", hw.OS, hw.OSVersion),
		"/proc/sys/kernel/osrelease":        hw.Kernel + "\n",
		"/proc/sys/kernel/random/boot_id":   hw.BootID + "\n",
		"/proc/stat":                        fmt.Sprintf("btime %d\n", time.Now().Unix()),
		"/proc/modules":                     "ext4 1048576 1 - Live 0x0000000000000000\n",
		"/proc/devices":                     "Character devices:\n  1 mem\n\nBlock devices:\n",
		"/sys/class/dmi/id/product_name":    "Simulated Machine\n",
		"/sys/module/firmware_class/uevent": "",
	}
	for i := range hw.GPUs {
		device := fmt.Sprintf("/sys/bus/pci/devices/0000:%02x:00.0/", 0x10+i)
		files[device+"vendor"], files[device+"device"] = "0x10de\n", "0x2330\n"
		files[device+"class"] = "0x030200\n"
		files[device+"uevent"] = "PCI_CLASS=30200\nPCI_ID=10DE:2330\n"
	}
	for path, content := range files {
		if err := h.write(path, content); err != nil {
			return err
		}
	}
	for _, dir := range []string{"/dev/char", "/usr/lib", "/usr/bin", "/sys/bus/pci/devices", "/sys/devices/system"} {
		if err := os.MkdirAll(h.Path(dir), 0o755); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(h.dir, "logs"), 0o755); err != nil {
		return err
	}
	if err := h.installImage(); err != nil {
		return err
	}
	if hw.DriverOnHost {
		return h.installDriver("/")
	}
	return nil
}

// installImage makes what the operator's image has besides gpu-node, and the program that plays all
// of NVIDIA's, once: a file that has just been written cannot always be run at once.
func (h *Host) installImage() error {
	if err := copyProgram(h.programs.StandIn, h.standIn()); err != nil {
		return err
	}
	cuda := filepath.Join(h.imageDir(), standin.CUDA)
	if err := os.Symlink(cmp.Or(h.programs.CUDA, h.standIn()), cuda); err != nil {
		return err
	}
	return h.setPart(cuda, 0)
}

func (h *Host) standIn() string { return filepath.Join(h.imageDir(), "stand-in") }

// imageDir holds what the operator's image has besides gpu-node.
func (h *Host) imageDir() string { return filepath.Join(h.dir, "image") }

// InstallDriver does what the driver container has done once its start-up probe passes: its root is
// shared, the modules are loaded, and the file that says so names the pod.
func (h *Host) InstallDriver(pod types.UID) error {
	if err := h.installDriver(driverRoot); err != nil {
		return fmt.Errorf("install the driver on node %s: %w", h.node, err)
	}
	ready := "GDRCOPY_ENABLED: false\nGDS_ENABLED: false\nGPU_DIRECT_RDMA_ENABLED: false\nDRIVER_INSTANCE: " + string(pod) + "\n"
	if err := h.write(driverReady, ready); err != nil {
		return fmt.Errorf("say on node %s that the driver is ready: %w", h.node, err)
	}
	return nil
}

// StopDriver does what the driver container's preStop hook does.
func (h *Host) StopDriver() error {
	return errors.Join(os.RemoveAll(h.Path(driverReady)), os.RemoveAll(h.Path(driverDaemons)))
}

// UnmountDriver takes away the driver container's root. Its modules stay loaded.
func (h *Host) UnmountDriver() error {
	if err := os.RemoveAll(h.Path(driverRoot)); err != nil {
		return fmt.Errorf("remove the driver's root on node %s: %w", h.node, err)
	}
	return nil
}

// ModulesLoaded tells whether the driver's kernel modules are loaded.
func (h *Host) ModulesLoaded() bool {
	_, err := os.Stat(h.Path("/sys/module/nvidia/refcnt"))
	return err == nil
}

// SetSMI makes every nvidia-smi of the machine end with an exit code; 0 is success.
func (h *Host) SetSMI(exitCode int) error {
	for _, root := range []string{"/", driverRoot} {
		smi := h.Path(filepath.Join(root, smiPath))
		if _, err := os.Stat(smi); err != nil {
			continue
		}
		if err := h.setPart(smi, exitCode); err != nil {
			return fmt.Errorf("set how nvidia-smi ends on node %s: %w", h.node, err)
		}
	}
	return nil
}

// installDriver puts a driver into a root of the machine and loads its modules.
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
	if err := os.MkdirAll(h.Path(filepath.Join(root, "dev")), 0o755); err != nil {
		return err
	}
	list := ""
	for _, module := range modules {
		list += module + " 1048576 1 - Live 0x0000000000000000 (OE)\n"
		for file, content := range map[string]string{"refcnt": "1", "version": standin.DriverVersion, "initstate": "live"} {
			if err := h.write("/sys/module/"+module+"/"+file, content+"\n"); err != nil {
				return err
			}
		}
	}
	files := map[string]string{
		"/proc/modules":               list,
		"/proc/devices":               "Character devices:\n  1 mem\n195 nvidia\n195 nvidiactl\n511 nvidia-uvm\n\nBlock devices:\n",
		"/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  " + standin.DriverVersion + "\n",
	}
	for i := range h.hardware.GPUs {
		files[fmt.Sprintf("/proc/driver/nvidia/gpus/0000:%02x:00.0/information", 0x10+i)] =
			"Model: \t\t NVIDIA H100 80GB HBM3\nGPU UUID: \t " + standin.GPUUUID(i) + "\nDevice Minor: \t " + strconv.Itoa(i) + "\n"
	}
	for path, content := range files {
		if err := h.write(path, content); err != nil {
			return err
		}
	}
	return nil
}

// setPart says how a stand-in behaves.
func (h *Host) setPart(program string, exitCode int) error {
	content, err := json.Marshal(standin.Part{GPUs: h.hardware.GPUs, ExitCode: exitCode})
	if err != nil {
		return err
	}
	return replace(program+standin.PartSuffix, string(content), 0o644)
}

func (h *Host) write(path, content string) error { return replace(h.Path(path), content, 0o644) }

// replace writes a file so that no reader sees a part of it.
func replace(path, content string, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	temp := path + ".tmp"
	if err := os.WriteFile(temp, []byte(content), mode); err != nil {
		return err
	}
	return os.Rename(temp, path)
}

func copyProgram(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return replace(to, string(content), 0o755)
}
