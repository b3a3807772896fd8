//go:build linux

package node

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// HostDriver is a driver that belongs to a machine's own system, so that no container installs one.
type HostDriver struct {
	// Dir has the driver's files by their places below /usr, such as bin/nvidia-smi.
	Dir string
	// Version is that of a driver which is played. It is empty for the driver of this computer: then the machine has this
	// computer's GPUs and kernel, and nothing of them is played.
	Version string
}

// isReal reports whether a machine has the driver of this computer. Without a driver of its own it has not.
func (h *HostDriver) isReal() bool { return h != nil && h.Version == "" }

// PlayDriver writes the files of a played driver into an empty folder, for HostDriver.Dir: libraries are those of
// package fakegpu, in the folder lib with their control files, and the program standIn plays nvidia-smi.
func PlayDriver(lib, standIn, version, dir string) error {
	libraries := filepath.Join(dir, strings.TrimPrefix(LibraryDir, "/usr"))
	err := errors.Join(os.MkdirAll(libraries, 0o755), copyFile(standIn, filepath.Join(dir, "bin", smi)))
	for _, name := range []string{"libcuda.so.", "libnvidia-ml.so."} {
		err = errors.Join(err, copyFile(filepath.Join(lib, name+"1"), filepath.Join(libraries, name+version)),
			os.Symlink(name+version, filepath.Join(libraries, name+"1")))
	}
	controls, globErr := filepath.Glob(filepath.Join(lib, "FAKE_*"))
	err = errors.Join(err, globErr)
	for _, file := range controls {
		err = errors.Join(err, copyFile(file, filepath.Join(libraries, filepath.Base(file))))
	}
	if err != nil {
		return fmt.Errorf("write the played driver: %w", err)
	}
	return nil
}

// smi is the driver's program that lists the GPUs.
const smi = "nvidia-smi"

// driverPatterns match the driver's files that programs which compute and watch GPUs use. Those for graphics have
// hundreds of megabytes.
var driverPatterns = []string{
	"libcuda.so*", "libcudadebugger.so*", "libnvidia-ml.so*", "libnvidia-cfg.so*", "libnvidia-gpucomp.so*",
	"libnvidia-nvvm*.so*", "libnvidia-ptxjitcompiler.so*", "libnvidia-pkcs11*.so*", "libnvidia-sandboxutils.so*",
}

// CopyDriver copies the files of this computer's driver into an empty folder, for HostDriver.Dir: they may be anywhere,
// and mounted one by one. It fails if nvidia-smi is not in PATH, or libcuda.so.1 in no folder of libraries.
func CopyDriver(dir string) error {
	program, err := exec.LookPath(smi)
	if err != nil {
		return fmt.Errorf("find the driver of this computer: %w", err)
	}
	if err := copyFile(program, filepath.Join(dir, "bin", smi)); err != nil {
		return fmt.Errorf("copy the driver of this computer: %w", err)
	}
	from, err := driverLibraries()
	if err != nil {
		return fmt.Errorf("find the driver of this computer: %w", err)
	}
	to := filepath.Join(dir, strings.TrimPrefix(LibraryDir, "/usr"))
	if err := os.MkdirAll(to, 0o755); err != nil {
		return fmt.Errorf("copy the driver of this computer: %w", err)
	}
	for _, pattern := range driverPatterns {
		found, err := filepath.Glob(filepath.Join(from, pattern))
		if err != nil {
			return err
		}
		for _, path := range found {
			if err := copyLibrary(path, to); err != nil {
				return fmt.Errorf("copy the driver of this computer: %w", err)
			}
		}
	}
	return nil
}

// driverLibraries returns the first folder that has libcuda.so.1: those of LD_LIBRARY_PATH, where images for GPUs have
// the driver, and those of the system.
func driverLibraries() (string, error) {
	const library = "libcuda.so.1"
	folders := filepath.SplitList(os.Getenv("LD_LIBRARY_PATH"))
	folders = append(folders, "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", LibraryDir)
	for _, folder := range append(folders, libraryDirs...) {
		if _, err := os.Stat(filepath.Join(folder, library)); err == nil {
			return folder, nil
		}
	}
	return "", fmt.Errorf("%s is not in %s", library, strings.Join(append(folders, libraryDirs...), ", "))
}

// copyLibrary copies a library into a folder, or a link with the library that it leads to, which may be elsewhere.
func copyLibrary(from, dir string) error {
	whole, err := filepath.EvalSymlinks(from)
	if err != nil {
		return err
	}
	name := filepath.Base(whole)
	if _, err := os.Lstat(filepath.Join(dir, name)); errors.Is(err, fs.ErrNotExist) {
		if err := copyFile(whole, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	if filepath.Base(from) == name {
		return nil
	}
	return os.Symlink(name, filepath.Join(dir, filepath.Base(from)))
}

// mountUsr mounts /usr of this computer, which the machine cannot change, with the files of its driver in it.
func (h *HostDriver) mountUsr(target string) error {
	options := "lowerdir=" + h.Dir + ":/usr"
	if err := mountAt("overlay", target, unix.MS_RDONLY, options); err != nil {
		return fmt.Errorf("install the driver of the machine: %w", err)
	}
	return nil
}

// makeDriverDevices creates the device nodes of this computer's driver in the machine's folder dev.
func makeDriverDevices(dev string) error {
	var made []string
	for _, pattern := range []string{"nvidia*", "nvidia-caps/*"} {
		found, err := filepath.Glob(filepath.Join("/dev", pattern))
		if err != nil {
			return err
		}
		made = append(made, found...)
	}
	for _, path := range made {
		var node unix.Stat_t
		if err := unix.Stat(path, &node); err != nil {
			return fmt.Errorf("read device %s: %w", path, err)
		}
		if node.Mode&unix.S_IFMT != unix.S_IFCHR {
			continue
		}
		copied := filepath.Join(dev, strings.TrimPrefix(path, "/dev/"))
		if err := os.MkdirAll(filepath.Dir(copied), 0o755); err != nil {
			return err
		}
		if err := unix.Mknod(copied, node.Mode, int(node.Rdev)); err != nil {
			return fmt.Errorf("make device %s: %w", copied, err)
		}
		if err := os.Chmod(copied, fs.FileMode(node.Mode).Perm()); err != nil {
			return err
		}
	}
	return nil
}

// load loads a played driver, as a machine does when it boots: the stand-in makes the kernel's files and the device
// nodes.
func (h *HostDriver) load() error {
	if h == nil || h.isReal() {
		return nil
	}
	command := exec.Command(filepath.Join(machineDir, loadDriver))
	command.Env = []string{"DRIVER_VERSION=" + h.Version}
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("load the machine's driver: %w\n%s", err, out)
	}
	return nil
}

// loadDriver is the name by which the machine starts the stand-in to load its driver.
const loadDriver = "load-driver"

// cLibrary are the parts of the C library, by their places in an image without the leading slash, which the driver's
// libraries need, whatever the program that loads these was linked with.
func cLibrary() (map[string]string, error) {
	found := map[string]string{}
	for _, name := range []string{"libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1"} {
		source, err := findLibrary(name)
		if err != nil {
			return nil, err
		}
		found[strings.TrimPrefix(source, "/")] = source
		needed, err := Libraries(source)
		if err != nil {
			return nil, err
		}
		maps.Copy(found, needed)
	}
	return found, nil
}
