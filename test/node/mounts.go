//go:build linux

package node

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// fromComputer are the folders of this computer that the machine uses, read-only: programs such as mount, which the
// kubelet calls, and their libraries.
var fromComputer = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64"}

// kernelSettings are what a kubelet sets for the whole kernel unless they already have these values. The machine has
// files with these values instead, and the kernel keeps its own.
var kernelSettings = map[string]string{
	"/proc/sys/vm/overcommit_memory":      "1",
	"/proc/sys/vm/panic_on_oom":           "0",
	"/proc/sys/kernel/panic":              "10",
	"/proc/sys/kernel/panic_on_oops":      "1",
	"/proc/sys/kernel/keys/root_maxkeys":  "1000000",
	"/proc/sys/kernel/keys/root_maxbytes": "25000000",
}

// hidden is where the machine has the files that replace the kernel's, a new one at each boot.
const hidden = "/run/machine/kernel"

// bootIDFile differs from boot to boot.
const bootIDFile = "/proc/sys/kernel/random/boot_id"

// mount builds the machine's tree of file systems and enters it.
func (d description) mount() error {
	// Mounts from here on are the machine's alone.
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return err
	}
	if err := bind(d.Root, d.Root, 0); err != nil {
		return err
	}
	if err := d.mountPrograms(); err != nil {
		return err
	}
	hierarchies, err := cgroupHierarchies()
	if err != nil {
		return err
	}
	if err := mountKernel(d.Root, hierarchies); err != nil {
		return err
	}
	if err := d.mountDevices(); err != nil {
		return err
	}
	if err := enterRoot(d.Root); err != nil {
		return err
	}
	if err := d.showHardware(); err != nil {
		return err
	}
	return hideKernelSettings()
}

// mountPrograms mounts the folders of this computer that the machine uses.
func (d description) mountPrograms() error {
	for _, dir := range fromComputer {
		if err := d.mountFromComputer(dir); err != nil {
			return err
		}
	}
	if err := bind(d.Binaries, filepath.Join(d.Root, programDir), unix.MS_RDONLY); err != nil {
		return err
	}
	// The machine's own: software that is installed there stays on its disk, and it contains os-release.
	local := filepath.Join(d.Root, "var", "local", "usr")
	if err := os.MkdirAll(local, 0o755); err != nil {
		return err
	}
	if err := bind(local, filepath.Join(d.Root, "usr", "local"), 0); err != nil {
		return err
	}
	return bind(filepath.Join(d.Root, "etc", "os-release"), filepath.Join(d.Root, "usr", "lib", "os-release"),
		unix.MS_RDONLY)
}

// mountFromComputer mounts a folder of this computer, which may be missing, or a link.
func (d description) mountFromComputer(dir string) error {
	target := filepath.Join(d.Root, dir)
	link, err := os.Readlink(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err == nil:
		if err := os.Symlink(link, target); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		return nil
	case dir == "/usr" && d.HostDriver != nil:
		return d.HostDriver.mountUsr(target)
	}
	return bind(dir, target, unix.MS_RDONLY)
}

// mountKernel mounts the file systems of the kernel.
func mountKernel(root string, hierarchies []hierarchy) error {
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	for _, m := range []struct {
		kind, at, options string
		flags             uintptr
	}{
		{"proc", "proc", "", flags},
		{"sysfs", "sys", "", flags},
		{"tmpfs", "sys/fs/cgroup", "mode=755", flags},
		{"tmpfs", "run", "mode=755", unix.MS_NOSUID | unix.MS_NODEV},
		{"tmpfs", "tmp", "mode=1777", unix.MS_NOSUID | unix.MS_NODEV},
	} {
		if err := mountAt(m.kind, filepath.Join(root, m.at), m.flags, m.options); err != nil {
			return err
		}
	}
	if err := os.Symlink("../run", filepath.Join(root, "var", "run")); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	for _, h := range hierarchies {
		target := filepath.Join(root, "sys/fs/cgroup", filepath.Base(h.path))
		if err := mountAt("cgroup", target, flags, h.options); err != nil {
			return err
		}
	}
	return nil
}

// mountDevices creates the machine's devices.
func (d description) mountDevices() error {
	dev := filepath.Join(d.Root, "dev")
	if err := mountDevices(dev); err != nil {
		return err
	}
	if d.HostDriver.isReal() {
		return makeDriverDevices(dev)
	}
	return nil
}

// mountDevices creates the devices that every container runtime relies on.
func mountDevices(dev string) error {
	if err := mountAt("tmpfs", dev, unix.MS_NOSUID, "mode=755"); err != nil {
		return err
	}
	for name, number := range map[string][2]uint32{
		"null": {1, 3}, "zero": {1, 5}, "full": {1, 7}, "random": {1, 8}, "urandom": {1, 9}, "kmsg": {1, 11}, "tty": {5, 0},
	} {
		path := filepath.Join(dev, name)
		if err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(number[0], number[1]))); err != nil {
			return fmt.Errorf("make device %s: %w", name, err)
		}
		if err := os.Chmod(path, 0o666); err != nil {
			return err
		}
	}
	for name, target := range map[string]string{
		"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
		"ptmx": "pts/ptmx",
	} {
		if err := os.Symlink(target, filepath.Join(dev, name)); err != nil {
			return err
		}
	}
	if err := os.Mkdir(filepath.Join(dev, "char"), 0o755); err != nil {
		return err
	}
	const flags = unix.MS_NOSUID | unix.MS_NOEXEC
	return errors.Join(
		mountAt("devpts", filepath.Join(dev, "pts"), flags, "newinstance,ptmxmode=0666,mode=620"),
		mountAt("tmpfs", filepath.Join(dev, "shm"), unix.MS_NOSUID|unix.MS_NODEV, "mode=1777"),
		mountAt("mqueue", filepath.Join(dev, "mqueue"), flags|unix.MS_NODEV, ""),
	)
}

// enterRoot makes the machine's root that of this process, with shared mount propagation, as on a machine that systemd
// has booted.
func enterRoot(root string) error {
	if err := unix.Chdir(root); err != nil {
		return err
	}
	// The old root is mounted on top of the new one, and unmounted.
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("enter %s: %w", root, err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the old root: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	return unix.Mount("", "/", "", unix.MS_SHARED|unix.MS_REC, "")
}

// hideKernelSettings makes a kubelet see the settings that it needs.
func hideKernelSettings() error {
	for path, value := range kernelSettings {
		file := filepath.Join(hidden, path)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			return err
		}
		if err := bind(file, path, 0); err != nil {
			return err
		}
	}
	return nil
}

// newID returns a random ID in the form of the kernel's boot ID.
func newID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // It never fails.
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

// mountAt mounts a file system of the kernel's, in a folder that it creates.
func mountAt(fstype, target string, flags uintptr, options string) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(fstype, target, fstype, flags, options); err != nil {
		return fmt.Errorf("mount %s at %s with %q: %w", fstype, target, options, err)
	}
	return nil
}

// bind mounts a file or a folder at another place, which it creates if missing.
func bind(source, target string, flags uintptr) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	if info.IsDir() {
		err = os.MkdirAll(target, 0o755)
	} else if _, missing := os.Lstat(target); missing != nil {
		err = errors.Join(os.MkdirAll(filepath.Dir(target), 0o755), os.WriteFile(target, nil, 0o644))
	}
	if err != nil {
		return err
	}
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("show %s at %s: %w", source, target, err)
	}
	if flags == 0 {
		return nil
	}
	if err := unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|flags, ""); err != nil {
		return fmt.Errorf("protect %s: %w", target, err)
	}
	return nil
}
