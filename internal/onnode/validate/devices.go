package validate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// modprobe is the driver's program that loads its modules and creates its device nodes.
const modprobe = "nvidia-modprobe"

// number is the number of a character device.
type number struct{ major, minor uint32 }

func (n number) String() string { return fmt.Sprintf("%d:%d", n.major, n.minor) }

var errNoDevice = errors.New("is not a character device")

// numberOf returns the number of the character device at path. Links are followed.
func numberOf(path string) (number, error) {
	info, err := os.Stat(path)
	if err != nil {
		return number{}, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || info.Mode()&os.ModeCharDevice == 0 {
		return number{}, errNoDevice
	}
	return number{major: unix.Major(stat.Rdev), minor: unix.Minor(stat.Rdev)}, nil
}

func (d Driver) device(path string) (number, error) {
	if d.numberOf != nil {
		return d.numberOf(path)
	}
	return numberOf(path)
}

// checkDevices requires the module nvidia_uvm, which CUDA needs, and the device nodes. Before the first CUDA program
// nothing else may have needed them, so if they are missing nvidia-modprobe is run to create them.
func (d Driver) checkDevices(ctx context.Context, found installed) error {
	problem := d.devicesProblem(found)
	if problem == nil {
		return nil
	}
	args := []string{"-u", "-c=0"}
	for _, gpu := range d.kernel().driverGPUs() {
		if gpu.minor != "" && gpu.minor != "0" {
			args = append(args, "-c="+gpu.minor)
		}
	}
	path, out, err := runFirst(ctx, d.Run, found.root, modprobe, args...)
	if path == "" {
		return problem
	}
	problem = d.devicesProblem(found)
	if problem != nil && err != nil {
		return fmt.Errorf("%w (%s fails: %w, output: %q)", problem, path, err, firstLine(out))
	}
	return problem
}

func (d Driver) devicesProblem(found installed) error {
	const remedy = "run nvidia-modprobe -u -c=0 there, or restart the driver's pod"
	hint := "CUDA needs it: run nvidia-modprobe -u " + found.inRoot() + ", and see the kernel log"
	if err := d.kernel().requireModule("nvidia_uvm", hint); err != nil {
		return err
	}
	names := []string{"nvidiactl", "nvidia-uvm"}
	for _, gpu := range d.kernel().driverGPUs() {
		if gpu.minor != "" && !gpu.excluded {
			names = append(names, "nvidia"+gpu.minor)
		}
	}
	for _, name := range names {
		device, err := d.device(filepath.Join(found.dev, "dev", name))
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("the device node /dev/%s is missing %s; %s", name, found.inDevRoot(), remedy)
		}
		if err != nil {
			return fmt.Errorf("/dev/%s %s cannot be used: %w; remove it and %s", name, found.inDevRoot(), err, remedy)
		}
		// The module may get another number each time it is loaded.
		major, known := d.kernel().major(name)
		if name == "nvidia-uvm" && known && major != device.major {
			return fmt.Errorf(
				"the device node /dev/%s %s has the major number %d, but the loaded module has %d; remove it and %s",
				name, found.inDevRoot(), device.major, major, remedy)
		}
	}
	return nil
}

// inRoot returns where to run the driver's programs, for messages.
func (f installed) inRoot() string {
	if f.onHost {
		return "on the host"
	}
	return "in the driver container"
}

// inDevRoot returns where the device nodes are, for messages.
func (f installed) inDevRoot() string {
	if f.devOnHost == "/" {
		return "on the host"
	}
	return "in the driver container"
}
