package validate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/kmod"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/pci"
)

// Driver validates a driver, on the host or in the driver container.
type Driver struct {
	// HostRoot is where the host's root file system is mounted here.
	HostRoot string
	// RootFS is HostRoot on the host; / if empty.
	RootFS string
	// DriverRoot is where the driver container's root file system is mounted here, InstallDir where it is on
	// the host.
	DriverRoot, InstallDir string
	// ContainerExpected is set if the operator runs a driver container. If so it is waited for; if not, the
	// driver of another program's container in DriverRoot is also accepted.
	ContainerExpected bool
	// MarkersDir is where the driver container reports that it is ready.
	MarkersDir string
	// SysRoot and ProcRoot are where sysfs and procfs are mounted here; /sys and /proc if empty.
	SysRoot, ProcRoot string
	// DevChar is where the host's /dev/char is mounted here. If empty, no links are created there.
	DevChar string
	// SkipGPUInit leaves the GPUs alone, for nodes whose GPUs belong to virtual machines: nvidia-smi only
	// prints its version, and modules, GPUs and device nodes are not checked.
	SkipGPUInit bool
	// Run runs nvidia-smi and nvidia-modprobe; Chroot on a node.
	Run Runner

	// Replaced in tests, which may not create device nodes; numberOf if nil.
	numberOf func(path string) (number, error)
}

// installed is the driver that was found: the root in which nvidia-smi succeeds.
type installed struct {
	onHost bool
	// root is that root as mounted here.
	root string
	// output is what nvidia-smi prints.
	output []byte
	// dev is the root of the /dev with the GPUs as mounted here, devOnHost the same on the host and devMount
	// in other pods.
	dev, devOnHost, devMount string
}

// Check implements Check. A working driver on the host comes first: where there is one, the driver container does not
// install another.
func (d Driver) Check(ctx context.Context) ([]marker.Assignment, error) {
	found, err := d.find(ctx)
	if err != nil {
		return nil, err
	}
	if err := d.validateAndLink(ctx, found); err != nil {
		return nil, fmt.Errorf("%s driver does not work: %w", found.whose(), err)
	}
	return d.assignments(found), nil
}

func (f installed) whose() string {
	if f.onHost {
		return "the host's"
	}
	return "the driver container's"
}

// find returns the driver whose nvidia-smi succeeds.
func (d Driver) find(ctx context.Context) (installed, error) {
	query := queryGPUs
	if d.SkipGPUInit {
		query = []string{"--version"}
	}
	onHost := installed{
		onHost: true, root: d.HostRoot, dev: d.HostRoot, devOnHost: d.rootFS(), devMount: labels.HostRootMount,
	}
	path, out, err := runFirst(ctx, d.Run, d.HostRoot, smi, query...)
	switch {
	case path != "" && err == nil:
		onHost.output = out
		return onHost, nil
	case d.ContainerExpected:
		// Leftovers on the host, such as tools without a kernel module, are ignored.
		if err := d.awaitContainer(); err != nil {
			return installed{}, err
		}
	case path != "":
		return installed{}, fmt.Errorf("%s driver does not work: %w", onHost.whose(), explain(ctx, path, out, err))
	}
	return d.findInContainer(ctx, query)
}

// findInContainer returns the driver in the driver container, or that of a host which has it in the same directory.
func (d Driver) findInContainer(ctx context.Context, query []string) (installed, error) {
	inContainer := d.inContainer()
	path, out, err := runFirst(ctx, d.Run, d.DriverRoot, smi, query...)
	if path == "" && !d.ContainerExpected {
		path, out, err = runWithLoader(ctx, d.Run, d.DriverRoot, query...)
	}
	inContainer.output = out
	switch {
	case path != "" && err == nil:
		return inContainer, d.awaitDaemons()
	case path != "":
		return installed{}, fmt.Errorf("%s driver does not work: %w", inContainer.whose(),
			explain(ctx, path, inContainer.output, err))
	case hasProgram(d.DriverRoot, smi):
		return installed{}, errors.New(
			"the driver container's nvidia-smi cannot be executed; check that its root has the C library and that it is for " +
				"this machine's architecture")
	case d.ContainerExpected:
		return installed{}, fmt.Errorf(
			"the driver container is ready, but there is no nvidia-smi below %s; check that %s is mounted there with "+
				"propagation from the host",
			d.DriverRoot, d.InstallDir)
	default:
		return installed{}, errors.New(
			"there is no nvidia-smi on the host, and no driver container; install a driver on the node or set " +
				"spec.driver.enabled to true")
	}
}

// inContainer returns the driver in the driver container. Its device nodes are in its own root if that has a /dev.
func (d Driver) inContainer() installed {
	found := installed{root: d.DriverRoot, dev: d.DriverRoot, devOnHost: d.InstallDir, devMount: labels.DriverRootMount}
	if info, err := os.Stat(filepath.Join(d.DriverRoot, "dev")); err != nil || !info.IsDir() {
		found.dev, found.devOnHost, found.devMount = d.HostRoot, d.rootFS(), labels.HostRootMount
	}
	return found
}

// validateAndLink checks what a container needs besides a driver that answers nvidia-smi, and links its devices.
func (d Driver) validateAndLink(ctx context.Context, found installed) error {
	switch {
	case d.SkipGPUInit:
		return d.link(found)
	case found.onHost && exists(filepath.Join(d.HostRoot, wslDir, smi)):
		return d.checkWSL(found)
	}
	gpus, err := parseGPUs(found.output)
	if err != nil {
		return err
	}
	if err := d.checkModule(gpus); err != nil {
		return err
	}
	if err := d.checkBus(gpus); err != nil {
		return err
	}
	if err := d.checkDevices(ctx, found); err != nil {
		return err
	}
	return d.link(found)
}

// checkModule requires the kernel module, of the version of the driver that nvidia-smi belongs to.
func (d Driver) checkModule(gpus []gpu) error {
	if err := d.kernel().requireModule(kmod.Driver, "check that sysfs of the node is mounted at "+d.kernel().sys+
		" and that nvidia-smi is the driver's own"); err != nil {
		return err
	}
	loaded := d.kernel().moduleVersion()
	for _, gpu := range gpus {
		if loaded != "" && gpu.driverVersion != loaded {
			return fmt.Errorf(
				"nvidia-smi belongs to driver %s, but the loaded kernel module nvidia has version %s; reboot the node, or "+
					"unload the module so that the installed one is loaded",
				gpu.driverVersion, loaded)
		}
	}
	return nil
}

// checkBus requires that nvidia-smi lists every GPU that is bound to the driver. A GPU that is lost while the driver
// runs stays bound to it.
func (d Driver) checkBus(gpus []gpu) error {
	bound, err := pci.BoundGPUs(d.kernel().sys)
	if err != nil {
		return fmt.Errorf("the GPUs of nvidia-smi cannot be compared with those on the bus: %w", err)
	}
	excluded := d.kernel().driverGPUs()
	lost := slices.DeleteFunc(bound, func(address string) bool {
		return slices.ContainsFunc(gpus, func(g gpu) bool { return g.address == address }) ||
			slices.ContainsFunc(excluded, func(g driverGPU) bool { return g.excluded && g.address == address })
	})
	if len(lost) > 0 {
		slices.Sort(lost)
		return fmt.Errorf("nvidia-smi lists %d of %d GPUs: %w", len(gpus), len(gpus)+len(lost), gpuLost(lost...))
	}
	return nil
}

// kernel returns where the facts of the kernel are read.
func (d Driver) kernel() kernel {
	return kernel{sys: cmp.Or(d.SysRoot, "/sys"), proc: cmp.Or(d.ProcRoot, "/proc")}
}

func (d Driver) rootFS() string { return cmp.Or(d.RootFS, "/") }

// assignments returns what the entrypoints of NVIDIA's images read, and which kernel module the validation holds for.
func (d Driver) assignments(found installed) []marker.Assignment {
	root, mount := d.rootFS(), labels.HostRootMount
	if !found.onHost {
		root, mount = d.InstallDir, labels.DriverRootMount
	}
	assignments := []marker.Assignment{
		{Key: labels.IsHostDriverKey, Value: strconv.FormatBool(found.onHost)},
		{Key: labels.DriverRootKey, Value: root},
		{Key: labels.DriverRootMountKey, Value: mount},
		{Key: labels.DevRootKey, Value: found.devOnHost},
		{Key: labels.DevRootMountKey, Value: found.devMount},
	}
	if kmod.Loaded(d.kernel().sys, kmod.Driver) {
		assignments = append(assignments, marker.Assignment{
			Key: labels.DriverModuleKey, Value: d.kernel().moduleVersion(),
		})
	}
	return assignments
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
