package kmod

import (
	"bytes"
	"os"
	"path/filepath"
)

// Driver is the kernel module of NVIDIA's driver.
const Driver = "nvidia"

// Loaded reports whether a module, named with underscores, is loaded and ready for use. sysRoot is where sysfs
// is mounted. A module that is being loaded or unloaded is not ready.
func Loaded(sysRoot, module string) bool {
	dir := filepath.Join(sysRoot, "module", module)
	if _, err := os.Stat(dir); err != nil {
		return false
	}
	// Missing where the module is built in.
	state, err := os.ReadFile(filepath.Join(dir, "initstate"))
	return err != nil || string(bytes.TrimSpace(state)) == "live"
}

// Version returns the version of a loaded module; empty if it states none, or is not loaded.
func Version(sysRoot, module string) string {
	version, err := os.ReadFile(filepath.Join(sysRoot, "module", module, "version"))
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(version))
}
