//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	modulesFile = "/proc/modules"
	// kernelProc is where a program that sees the machine's modules has the /proc of the kernel.
	kernelProc = "/run/kernel-proc"
)

// withModules returns a part that becomes the program at a path, for which alone the file /proc/modules has the
// machine's modules: a kernel without modules has no such file, and its /proc takes none.
func withModules(path string) func([]string) error {
	return func(args []string) error {
		if err := showModules(); err != nil {
			return fmt.Errorf("show the modules to %s: %w", path, err)
		}
		return unix.Exec(path, append([]string{filepath.Base(path)}, args...), os.Environ())
	}
}

// showModules replaces /proc, in a mount namespace of its own, by links to the kernel's and the machine's modules.
// The calling thread enters the namespace and must become the program.
func showModules() error {
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), os.MkdirAll(kernelProc, 0o755),
		unix.Mount("/proc", kernelProc, "", unix.MS_BIND|unix.MS_REC, "")); err != nil {
		return err
	}
	entries, err := os.ReadDir(kernelProc)
	if err != nil {
		return err
	}
	if err := unix.Mount("proc", "/proc", "tmpfs", 0, ""); err != nil {
		return err
	}
	for _, entry := range entries {
		path := filepath.Join("/proc", entry.Name())
		if _, err := strconv.Atoi(entry.Name()); err == nil || path == modulesFile {
			continue
		}
		if err := os.Symlink(filepath.Join(kernelProc, entry.Name()), path); err != nil {
			return err
		}
	}
	text, err := loadedModules("/")
	if err != nil {
		return err
	}
	return os.WriteFile(modulesFile, []byte(text), 0o444)
}

// loadedModules returns what the file /proc/modules has of a machine whose files are below a folder.
func loadedModules(root string) (string, error) {
	loaded, err := os.ReadDir(filepath.Join(root, moduleDir))
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for _, module := range loaded {
		if _, err := os.Stat(filepath.Join(root, moduleDir, module.Name(), "initstate")); err == nil {
			fmt.Fprintf(&text, "%s 1 0 - Live 0x0000000000000000\n", module.Name())
		}
	}
	return text.String(), nil
}
