//go:build linux

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// toolkit is the container toolkit: it installs the runtime, configures containerd for it and waits. If it is ended
// before it waits, it leaves what it has done.
func toolkit([]string) error {
	pidFile := os.Getenv("TOOLKIT_PID_FILE")
	if err := lockPIDFile(pidFile); err != nil {
		return fmt.Errorf("unable to initialize: %w", err)
	}
	defer func() { _ = os.Remove(pidFile) }()
	signalled, configured := ended(), make(chan error, 1)
	go func() { configured <- configureRuntime() }()
	select {
	case <-signalled:
		return nil
	case err := <-configured:
		if err != nil {
			return err
		}
	}
	fmt.Println("Waiting for signal")
	<-signalled
	// When it ends, it withdraws its configuration of the runtime.
	if err := os.Remove(os.Getenv("RUNTIME_DROP_IN_CONFIG")); err != nil {
		return err
	}
	// The signal of the real one is lost now and then.
	if err := follow("toolkit-signal"); err != nil {
		return err
	}
	return restartRuntime()
}

// lockPIDFile makes a file with the number of this process, unless another one has locked it. Its own lock is lost, as
// that of the real one at a garbage collection.
func lockPIDFile(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("unable to get flock on pidfile: %w", err)
	}
	_, err = fmt.Fprintln(file, os.Getpid())
	return err
}

// configureRuntime installs the runtime, and makes containerd know it.
func configureRuntime() error {
	dir := filepath.Join(os.Getenv("ROOT"), "toolkit")
	if err := installRuntime(dir); err != nil {
		return fmt.Errorf("install the runtime: %w", err)
	}
	dropIn, config := os.Getenv("RUNTIME_DROP_IN_CONFIG"), os.Getenv("RUNTIME_CONFIG")
	if dropIn == "" || config == "" {
		return errors.New("RUNTIME_CONFIG and RUNTIME_DROP_IN_CONFIG must say where the runtime has its configuration")
	}
	known, err := os.ReadFile(config)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the configuration of the runtime: %w", err)
	}
	if err := write(dropIn, handlers(dir, string(known))); err != nil {
		return fmt.Errorf("configure the runtime: %w", err)
	}
	return restartRuntime()
}

// wrapper starts a program of the toolkit beside which it is.
const wrapper = "#!/bin/sh\nexec %s.real \"$@\"\n"

// wrapped are the programs of the toolkit that are started by a script.
var wrapped = []string{
	"nvidia-ctk", "nvidia-container-cli", "nvidia-container-runtime", "nvidia-container-runtime.cdi",
	"nvidia-container-runtime.legacy", "nvidia-container-runtime-hook",
}

// installRuntime installs the toolkit in place of another one, and describes the devices: by CDI, or else for its own
// runtime alone.
func installRuntime(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	config := filepath.Join(dir, toolkitConfig)
	if err := os.MkdirAll(filepath.Dir(config), 0o755); err != nil {
		return err
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	program := filepath.Join(dir, "nvidia-cdi-hook")
	if err := os.WriteFile(program, self, 0o755); err != nil {
		return err
	}
	for _, name := range wrapped {
		path := filepath.Join(dir, name)
		err := errors.Join(os.Link(program, path+".real"), os.WriteFile(path, fmt.Appendf(nil, wrapper, path), 0o755))
		if err != nil {
			return err
		}
	}
	for _, name := range []string{"libnvidia-container.so.1", "libnvidia-container-go.so.1"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			return err
		}
	}
	described := managementFile
	if os.Getenv("CDI_ENABLED") == "true" {
		err = os.WriteFile(config, nil, 0o644)
	} else {
		described = config
	}
	return errors.Join(err, os.Symlink("nvidia-container-runtime-hook", filepath.Join(dir, "nvidia-container-toolkit")),
		writeManagement(described))
}

// handlers returns the drop-in for containerd. Those of the modes have fixed names, and the main one none of these.
// They have the options of runc in the configuration.
func handlers(dir, config string) string {
	programs := map[string]string{
		"nvidia-cdi": "nvidia-container-runtime.cdi", "nvidia-legacy": "nvidia-container-runtime.legacy",
	}
	class := cmp.Or(os.Getenv("CONTAINERD_RUNTIME_CLASS"), "nvidia")
	main := class
	if programs[class] != "" {
		main = "nvidia"
	}
	programs[main] = "nvidia-container-runtime"
	const plugin = "plugins.'io.containerd.cri.v1.runtime'"
	text := fmt.Sprintf("version = 3\n[%s]\n", plugin)
	if os.Getenv("CDI_ENABLED") == "true" {
		text += "  enable_cdi = true\n"
	}
	if os.Getenv("NVIDIA_RUNTIME_SET_AS_DEFAULT") != "false" {
		text += fmt.Sprintf("[%s.containerd]\n  default_runtime_name = %q\n", plugin, class)
	}
	for name, program := range programs {
		table := fmt.Sprintf("%s.containerd.runtimes.%s", plugin, name)
		text += fmt.Sprintf(
			"\n[%s]\n  runtime_type = \"io.containerd.runc.v2\"\n[%s.options]\n  BinaryName = %q\n  SystemdCgroup = %t\n",
			table, table, filepath.Join(dir, program), strings.Contains(config, "SystemdCgroup = true"))
	}
	return text
}

// restartRuntime makes the process that listens on the socket read its configuration again. It tries for as long as the
// real one.
func restartRuntime() error {
	const attempts, pause = 6, 5 * time.Second
	for attempt := 1; ; attempt++ {
		err := signalRuntime(os.Getenv("RUNTIME_SOCKET"))
		if err == nil || attempt == attempts {
			return err
		}
		fmt.Println(err)
		time.Sleep(pause)
	}
}

// signalRuntime sends the process that listens on the socket the signal that ends containerd; the machine then restarts
// it.
func signalRuntime(socket string) error {
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
