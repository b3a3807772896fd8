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

// modprobe is the driver's program that loads its modules and makes its device nodes.
const modprobe = "nvidia-modprobe"

// number is the number of a character device.
type number struct{ major, minor uint32 }

func (n number) String() string { return fmt.Sprintf("%d:%d", n.major, n.minor) }

var errNoDevice = errors.New("is not a character device")

// numberOf returns the number of the character device at path. A link counts as what it leads to.
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

// proveDevices requires the module nvidia_uvm, which CUDA needs, and the device nodes. Nothing else
// on the node may need them before the first CUDA program, so where they are missing the driver's own
// program is asked to make them.
func (d Driver) proveDevices(ctx context.Context, found installed) error {
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
	if err := d.kernel().requireModule("nvidia_uvm", "CUDA needs it: run nvidia-modprobe -u "+found.inRoot()+", and see the kernel log"); err != nil {
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
		// The module gets another number each time that it is loaded, if others were loaded since.
		major, known := d.kernel().major(name)
		if name == "nvidia-uvm" && known && major != device.major {
			return fmt.Errorf(
				"the device node /dev/%s %s has the major number %d, but the loaded module has %d; remove it and %s", name,
				found.inDevRoot(), device.major, major, remedy)
		}
	}
	return nil
}

// inRoot tells a person where the driver's programs are to be run.
func (f installed) inRoot() string {
	if f.onHost {
		return "on the host"
	}
	return "in the driver container"
}

// inDevRoot tells a person where the device nodes are.
func (f installed) inDevRoot() string {
	if f.devOnHost == "/" {
		return "on the host"
	}
	return "in the driver container"
}
