package host

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/clusterpolicy/gpu-operator/test/simulator/host/standin"
)

// Paths of NVIDIA's files that gpu-node reads. They are repeated here instead of imported from the program's
// packages, so that a mistake there does not hide itself.
const (
	driverRoot     = "/run/nvidia/driver"
	validationsDir = "/run/nvidia/validations"
	driverReady    = validationsDir + "/.driver-ctr-ready"
	driverDaemons  = validationsDir + "/.driver-daemons-status"
	smiPath        = "/usr/bin/" + standin.SMI
	pciDevices     = "/sys/bus/pci/devices"
	kernelLog      = "/dev/kmsg"
)

// install populates the root file system of a machine that has just booted.
func (h *Host) install() error {
	hw := h.hardware
	release := fmt.Sprintf("ID=%s\nVERSION_ID=%q\n", hw.OS, hw.OSVersion)
	files := map[string]string{
		"/etc/os-release":                   release, // On a real machine this is a link.
		"/usr/lib/os-release":               release,
		"/proc/sys/kernel/osrelease":        hw.Kernel + "\n",
		"/proc/sys/kernel/random/boot_id":   hw.BootID + "\n",
		"/proc/stat":                        fmt.Sprintf("btime %d\n", time.Now().Unix()),
		"/proc/self/mountinfo":              "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n",
		"/proc/modules":                     "ext4 1048576 1 - Live 0x0000000000000000\n",
		"/proc/devices":                     "Character devices:\n  1 mem\n\nBlock devices:\n",
		"/sys/class/dmi/id/product_name":    "Simulated Machine\n",
		"/sys/module/firmware_class/uevent": "",
	}
	for i := range hw.GPUs {
		device := pciDevices + "/" + standin.GPUAddress(i) + "/"
		files[device+"vendor"], files[device+"device"] = "0x10de\n", "0x2330\n"
		files[device+"class"] = "0x030200\n"
		files[device+"uevent"] = "PCI_CLASS=30200\nPCI_ID=10DE:2330\n"
	}
	for path, content := range files {
		if err := h.write(path, content); err != nil {
			return err
		}
	}
	for _, dir := range []string{"/dev/char", "/usr/lib", "/usr/bin", pciDevices, "/sys/devices/system"} {
		if err := os.MkdirAll(h.Path(dir), 0o755); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(h.dir, "logs"), 0o755); err != nil {
		return err
	}
	if err := errors.Join(h.installImage(), h.openKernelLog()); err != nil {
		return err
	}
	if hw.DriverOnHost {
		return h.installDriver("/")
	}
	return nil
}

// installImage installs the other files of the operator's image, and the stand-in, once: a file that was just written
// cannot always be executed immediately.
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

// imageDir has the files of the operator's image other than gpu-node.
func (h *Host) imageDir() string { return filepath.Join(h.dir, "image") }

// setPart configures the behaviour of a stand-in.
func (h *Host) setPart(program string, exitCode int) error {
	content, err := json.Marshal(standin.Part{GPUs: h.hardware.GPUs, ExitCode: exitCode})
	if err != nil {
		return err
	}
	return replace(program+standin.PartSuffix, string(content), 0o644)
}

func (h *Host) write(path, content string) error { return replace(h.Path(path), content, 0o644) }

// replace writes a file atomically.
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
