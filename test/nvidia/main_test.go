//go:build linux

package nvidia

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/needs"
	"github.com/clusterpolicy/gpu-operator/test/nvidia/dra"
)

// machineVariable names the folder of the machine, in the process that enters it and then becomes a program.
const machineVariable = "TEST_NVIDIA_MACHINE"

// programs is the folder of NVIDIA's programs, standIn the program that plays them, and gpuNode is cmd/gpu-node.
var programs, standIn, gpuNode string

func TestMain(m *testing.M) {
	if dir := os.Getenv(machineVariable); dir != "" {
		fmt.Fprintln(os.Stderr, enter(dir, os.Args[1], os.Args[2:]))
		os.Exit(1)
	}
	if socket := os.Getenv(containerdVariable); socket != "" {
		fmt.Fprintln(os.Stderr, playContainerd(socket))
		os.Exit(1)
	}
	if err := available(); err != nil {
		fmt.Println("SKIPPED:", err)
		if err := needs.Tolerate(needs.Root, err); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	err := cluster.SetParallel()
	if err == nil {
		programs, err = cluster.EnsureNVIDIAPrograms(testContext(), os.Stderr, "nvidia-device-plugin",
			"gpu-feature-discovery", "config-manager", "mps-control-daemon", "nvidia-ctk", installer, "nvidia-mig-parted",
			"nvidia-mig-manager", dra.Program)
	}
	if err == nil {
		standIn, err = cluster.BuildNodeStandIn(testContext(), os.Stderr)
	}
	if err == nil {
		gpuNode, _, err = cluster.BuildNodePrograms(testContext(), os.Stderr)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// available returns why NVIDIA's programs cannot run here; nil if they can.
func available() error {
	if os.Geteuid() != 0 {
		return errors.New("NVIDIA's programs need root")
	}
	if _, err := exec.LookPath("cc"); err != nil {
		return fmt.Errorf("the stand-ins of the driver's libraries need a C compiler: %w", err)
	}
	return nil
}

// addToRoot shows a folder of a machine, if it has it, in the root of the file system, where this computer has none.
func addToRoot(dir, folder string) error {
	if _, err := os.Stat(filepath.Join(dir, folder)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	entries, err := os.ReadDir("/")
	if err != nil {
		return err
	}
	root := filepath.Join(dir, "root")
	show := func(from, name string) error {
		to := filepath.Join(root, name)
		return errors.Join(os.MkdirAll(to, 0o755),
			unix.Mount(filepath.Join(from, name), to, "", unix.MS_BIND|unix.MS_REC, ""))
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	for _, entry := range entries {
		switch path := filepath.Join("/", entry.Name()); entry.Type() {
		case fs.ModeDir:
			err = errors.Join(err, show("/", entry.Name()))
		case fs.ModeSymlink:
			target, readErr := os.Readlink(path)
			err = errors.Join(err, readErr, os.Symlink(target, filepath.Join(root, entry.Name())))
		}
	}
	return errors.Join(err, show(dir, folder), unix.Chroot(root), os.Chdir("/"))
}

// enter mounts the files of a machine over those of this computer, for this process alone, and becomes a program.
func enter(dir, path string, command []string) error {
	if err := unix.Mount("/proc", dir+kernelProc, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("keep /proc of the kernel: %w", err)
	}
	for place, target := range places {
		if err := unix.Mount(dir+place, target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("show %s of the machine: %w", target, err)
		}
	}
	if err := addToRoot(dir, "mps"); err != nil {
		return fmt.Errorf("show /mps of the machine: %w", err)
	}
	if err := os.Unsetenv(machineVariable); err != nil {
		return err
	}
	return fmt.Errorf("become %s: %w", path, unix.Exec(path, command, os.Environ()))
}
