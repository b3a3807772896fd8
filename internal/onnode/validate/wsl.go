package validate

import (
	"errors"
	"os"
	"path/filepath"
)

// wslDir is where Windows mounts its driver's programs and libraries in WSL 2.
const wslDir = "/usr/lib/wsl/lib"

// checkWSL is validate for WSL: the driver is that of Windows, so there are neither modules nor a device node for each
// GPU, but one device for all.
func (d Driver) checkWSL(found installed) error {
	if _, err := parseGPUs(found.output); err != nil {
		return err
	}
	info, err := os.Stat(filepath.Join(d.HostRoot, "dev", "dxg"))
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return errors.New("the WSL guest has no device /dev/dxg; update WSL and the Windows driver")
	}
	return nil
}
