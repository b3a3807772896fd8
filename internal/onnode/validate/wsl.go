package validate

import (
	"errors"
	"os"
	"path/filepath"
)

// wslDir is where Windows puts its driver's programs and libraries into a Linux guest (WSL 2).
const wslDir = "/usr/lib/wsl/lib"

// proveWSL is prove for a guest of Windows: the driver is the host's, so the guest has neither modules
// nor a device node for each GPU, but one device for all.
func (d Driver) proveWSL(found installed) error {
	if _, err := parseGPUs(found.output); err != nil {
		return err
	}
	info, err := os.Stat(filepath.Join(d.HostRoot, "dev", "dxg"))
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return errors.New("the guest of Windows has no device /dev/dxg; update WSL and the driver of Windows")
	}
	return nil
}
