package validate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const smi = "nvidia-smi"

// bottlerocketDir is where Bottlerocket has the driver's programs.
const bottlerocketDir = "/usr/libexec/nvidia/tesla/bin"

// programDirs are where drivers install their programs, as paths below a root.
var programDirs = []string{"/usr/bin", "/usr/sbin", "/bin", "/sbin", wslDir, "/opt/bin", bottlerocketDir}

// smiCodes has the meaning of the exit codes of nvidia-smi, with the remedy.
var smiCodes = map[int]string{
	4:   "no permission to use the GPUs; the container must be privileged",
	6:   "no GPU found; see the kernel log for errors of the GPU",
	8:   "a GPU has no external power; check its power cables",
	9:   "the driver's kernel module is not loaded; see the kernel log and the driver's log",
	10:  "the kernel has an interrupt issue with a GPU; see the kernel log",
	12:  "libnvidia-ml.so.1 is missing; install the driver's libraries next to nvidia-smi",
	14:  "the infoROM of a GPU is corrupt; have the GPU serviced",
	15:  "a GPU has fallen off the bus; reset the GPU or reboot the node",
	18:  "the kernel module and the driver's libraries differ in version; reboot the node after a driver update",
	255: "internal error of the driver; see the kernel log",
}

// Runner runs the program at path, seen from root, and returns its output and errors together. absent is true of the
// error if there is no such program.
type Runner func(ctx context.Context, root, path string, args ...string) ([]byte, error)

// Chroot is the Runner on a node. The program runs in root as its own file system: it needs its own loader and C
// library, which this program's image does not have, and absolute symbolic links (/etc/alternatives) must lead to the
// same place as on the host. This is also why a driver in a container is run in a chroot rather than with LD_PRELOAD of
// its libnvidia-ml.so.1. Needs CAP_SYS_CHROOT, except for the root "/".
func Chroot(ctx context.Context, root, path string, args ...string) ([]byte, error) {
	command := exec.CommandContext(ctx, path, args...)
	if root != "/" {
		command.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	}
	command.Dir = "/"
	// A program of the host must not get this container's environment.
	command.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	return runCommand(command)
}

// runCommand runs the command, and returns its output. Processes that the command leaves behind must not keep that open
// forever.
func runCommand(command *exec.Cmd) ([]byte, error) {
	command.WaitDelay = time.Second
	return command.CombinedOutput()
}

// runFirst runs the first program with this name in root that can be executed, and returns its path; empty if there is
// none.
func runFirst(ctx context.Context, run Runner, root, name string, args ...string) (path string, out []byte, err error) {
	for _, dir := range programDirs {
		path := dir + "/" + name
		out, err := run(ctx, root, path, args...)
		if err == nil || !absent(err) {
			return path, out, err
		}
	}
	return "", nil, nil
}

// loaders are the loaders of the C library of this container, by architecture.
var loaders = []string{"/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"}

// libraryDirs are where drivers without a C library of their own have their libraries, as paths below a root: that of
// Container-Optimized OS, and those of the extensions of Talos.
var libraryDirs = []string{"/lib64", "/lib", "/glibc/usr/lib", "/glibc/lib"}

// runWithLoader runs nvidia-smi like runFirst, for a root that has a driver's files and no C library, as the directory
// into which Google's installer puts the driver. The program runs outside of that root, with the C library of this
// container.
func runWithLoader(
	ctx context.Context, run Runner, root string, args ...string,
) (path string, out []byte, err error) {
	var libraries []string
	for _, dir := range libraryDirs {
		libraries = append(libraries, filepath.Join(root, dir))
	}
	for _, dir := range programDirs {
		if !hasFile(root, dir, smi) {
			continue
		}
		path := dir + "/" + smi
		for _, loader := range loaders {
			out, err := run(ctx, "/", loader, slices.Concat(
				[]string{"--library-path", strings.Join(libraries, ":"), filepath.Join(root, path)}, args)...)
			if err == nil || !absent(err) {
				return path, out, err
			}
		}
	}
	return "", nil, nil
}

// BareLibrary returns the path of the driver's library with this soname, as seen here, and true, if root has a driver's
// files and no C library, as in runWithLoader. Otherwise a program that uses the library must run in root.
func BareLibrary(root, soname string) (path string, bare bool) {
	for _, loader := range loaders {
		// It may be a link that only leads somewhere in root.
		if _, err := os.Lstat(filepath.Join(root, loader)); err == nil {
			return "", false
		}
	}
	for _, dir := range libraryDirs {
		if hasFile(root, dir, soname) {
			return filepath.Join(root, dir, soname), true
		}
	}
	return "", false
}

// hasProgram reports whether root has such a program, executable or not. Some images have an empty file in place of a
// driver's program.
func hasProgram(root, name string) bool {
	return slices.ContainsFunc(programDirs, func(dir string) bool { return hasFile(root, dir, name) })
}

func hasFile(root, dir, name string) bool {
	info, err := os.Lstat(filepath.Join(root, dir, name))
	return err == nil && info.Size() > 0
}

// absent reports whether there is no program to run: no file, one that is not executable, or an empty one, which some
// images have in place of a driver's.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) ||
		errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.ENOEXEC)
}

// explain returns why nvidia-smi failed, with the remedy.
func explain(ctx context.Context, path string, out []byte, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s was stopped: %w", path, context.Cause(ctx))
	}
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%s cannot be run; the container must be privileged: %w", path, err)
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return fmt.Errorf("%s cannot be run: %w", path, err)
	}
	if address := lostGPU(out); address != "" {
		return gpuLost(address)
	}
	cause, known := smiCodes[exit.ExitCode()]
	if !known {
		cause = "see its output and the kernel log"
	}
	return fmt.Errorf("%s fails with %w: %s (output: %q)", path, exit, cause, firstLine(out))
}

// firstLine returns the line that names the cause, cut for a termination message.
func firstLine(out []byte) string {
	const most = 200
	line, _, _ := strings.Cut(string(bytes.TrimSpace(out)), "\n")
	return line[:min(len(line), most)]
}
