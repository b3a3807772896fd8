//go:build linux

package main

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// toolkit is the container toolkit: it installs the runtime, configures containerd for it and waits.
func toolkit([]string) error {
	dir := filepath.Join(os.Getenv("ROOT"), "toolkit")
	if err := installRuntime(dir); err != nil {
		return fmt.Errorf("install the runtime: %w", err)
	}
	if err := writeManagement(); err != nil {
		return fmt.Errorf("describe the devices: %w", err)
	}
	dropIn, socket := os.Getenv("RUNTIME_DROP_IN_CONFIG"), os.Getenv("RUNTIME_SOCKET")
	if dropIn == "" || socket == "" {
		return errors.New(
			"RUNTIME_DROP_IN_CONFIG and RUNTIME_SOCKET must say where the runtime has its configuration and its socket")
	}
	if err := write(dropIn, handlers(dir)); err != nil {
		return fmt.Errorf("configure the runtime: %w", err)
	}
	if err := restartRuntime(socket); err != nil {
		return err
	}
	if pidFile := os.Getenv("TOOLKIT_PID_FILE"); pidFile != "" {
		if err := write(pidFile, strconv.Itoa(os.Getpid())); err != nil {
			return err
		}
	}
	fmt.Println("the toolkit runs")
	if err := untilEnd(); err != nil {
		return err
	}
	// When it ends, it withdraws its configuration of the runtime.
	return errors.Join(os.Remove(dropIn), restartRuntime(socket))
}

func installRuntime(dir string) error {
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	for _, name := range []string{
		"nvidia-container-runtime", "nvidia-container-runtime.cdi", "nvidia-container-runtime.legacy", "nvidia-ctk",
		"nvidia-cdi-hook",
	} {
		path := filepath.Join(dir, name)
		// Renamed: the old one may be running.
		err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(path+".new", self, 0o755), os.Rename(path+".new", path))
		if err != nil {
			return err
		}
	}
	return nil
}

// handlers returns the drop-in for containerd. Those of the modes have fixed names, and the main one none of these.
func handlers(dir string) string {
	programs := map[string]string{
		"nvidia-cdi": "nvidia-container-runtime.cdi", "nvidia-legacy": "nvidia-container-runtime.legacy",
	}
	class := cmp.Or(os.Getenv("CONTAINERD_RUNTIME_CLASS"), "nvidia")
	if programs[class] != "" {
		class = "nvidia"
	}
	programs[class] = "nvidia-container-runtime"
	text := "version = 3\n"
	for name, program := range programs {
		table := fmt.Sprintf("plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.%s", name)
		text += fmt.Sprintf(
			"\n[%s]\n  runtime_type = \"io.containerd.runc.v2\"\n[%s.options]\n  BinaryName = %q\n  SystemdCgroup = false\n",
			table, table, filepath.Join(dir, program))
	}
	return text
}

// restartRuntime makes the process that listens on the socket read its configuration again, by the signal that ends
// containerd; the machine then restarts it.
func restartRuntime(socket string) error {
	connection, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return fmt.Errorf("reach the runtime: %w", err)
	}
	defer func() { _ = connection.Close() }()
	raw, err := connection.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var peerErr error
	if err := raw.Control(func(fd uintptr) {
		peer, peerErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return err
	}
	if peerErr != nil {
		return fmt.Errorf("find the process of the runtime: %w", peerErr)
	}
	if err := syscall.Kill(int(peer.Pid), syscall.SIGHUP); err != nil {
		return fmt.Errorf("restart the runtime, process %d: %w", peer.Pid, err)
	}
	return nil
}

// runWithGPUs is the runtime of the handler nvidia: runc, which injects GPUs into the containers that request them by
// their environment.
func runWithGPUs(args []string) error {
	if bundle := bundleOf(args); bundle != "" {
		if err := edit(bundle, inject); err != nil {
			return err
		}
	}
	runc, err := exec.LookPath("runc")
	if err != nil {
		return err
	}
	return unix.Exec(runc, append([]string{runc}, args...), os.Environ())
}

// libraryDir returns where the driver's root and the operator's image have their libraries.
func libraryDir() string {
	return map[string]string{"amd64": "/usr/lib/x86_64-linux-gnu", "arm64": "/usr/lib/aarch64-linux-gnu"}[runtime.GOARCH]
}

// variable returns the value of a variable of the container's program.
func (s spec) variable(name string) string {
	environment, _ := s.section("process")["env"].([]any)
	value := ""
	for _, variable := range environment {
		if text, ok := variable.(string); ok {
			if after, found := strings.CutPrefix(text, name+"="); found {
				value = after
			}
		}
	}
	return value
}

// libraries are the driver's libraries that programs load.
var libraries = []string{"libcuda.so.1", "libnvidia-ml.so.1"}

// device adds a device node to a configuration.
func (s spec) device(source, at string) error {
	var stat unix.Stat_t
	if err := unix.Stat(source, &stat); err != nil {
		return fmt.Errorf("find the device %s: %w", source, err)
	}
	major, minor := unix.Major(stat.Rdev), unix.Minor(stat.Rdev)
	linux := s.section("linux")
	linux.add("devices",
		map[string]any{"path": at, "type": "c", "major": major, "minor": minor, "fileMode": 0o666, "uid": 0, "gid": 0})
	linux.section("resources").
		add("devices", map[string]any{"allow": true, "type": "c", "major": major, "minor": minor, "access": "rwm"})
	return nil
}
