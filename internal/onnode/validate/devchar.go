package validate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// DisableLinksEnv is the variable that turns off the links in /dev/char, set to true by users in
// spec.validator.driver.env. NVIDIA's validator has the same.
const DisableLinksEnv = "DISABLE_DEV_CHAR_SYMLINK_CREATION"

// devChar is the directory of the links on the host.
const devChar = "/dev/char"

// deviceGlobs match the device nodes of the driver, below /dev.
var deviceGlobs = []string{"nvidia*", "nvidia-caps/*", "nvidia-caps-imex-channels/*"}

// link creates a link MAJOR:MINOR in the host's /dev/char for each device node of the driver. The kernel creates none
// for NVIDIA's devices, and systemd, which looks up the devices that a container may use by those links, takes the
// GPUs away from running containers at its next daemon-reload.
func (d Driver) link(found installed) error {
	if d.DevChar == "" {
		return nil
	}
	dev := filepath.Join(found.dev, "dev")
	for _, glob := range deviceGlobs {
		paths, err := filepath.Glob(filepath.Join(dev, glob))
		if err != nil {
			return fmt.Errorf("the device nodes cannot be listed; use a root without special characters: %w", err)
		}
		for _, path := range paths {
			device, err := d.device(path)
			if err != nil {
				continue // A directory, or a file that is not a device.
			}
			name := strings.TrimPrefix(path, dev+"/")
			if err := d.linkDevice(found, name, device); err != nil {
				return fmt.Errorf(
					"the links in %s, without which containers lose their GPUs at a daemon-reload of systemd, cannot be created; "+
						"mount the host's %s read-write, or set %s=true in spec.validator.driver.env: %w",
					devChar, devChar, DisableLinksEnv, err)
			}
		}
	}
	return nil
}

// linkDevice creates the link of one device, unless there is one to it.
func (d Driver) linkDevice(found installed, name string, device number) error {
	path := filepath.Join(d.DevChar, device.String())
	if d.leadsTo(path, device) {
		return nil
	}
	target := filepath.Join(found.devOnHost, "dev", name)
	if onHost, err := d.device(filepath.Join(d.HostRoot, "dev", name)); err == nil && onHost == device {
		target = "../" + name
	}
	// A run that was killed leaves this file behind; the name is fixed so that the next run replaces it.
	tmp := filepath.Join(d.DevChar, ".nvidia-"+device.String())
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(target, tmp); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		_ = os.Remove(tmp)
		return err
	}
	return nil
}

// leadsTo reports whether the entry of /dev/char is the device, or a link that leads to it on the host.
func (d Driver) leadsTo(path string, device number) bool {
	target, err := os.Readlink(path)
	if err != nil {
		found, err := d.device(path)
		return err == nil && found == device
	}
	if !filepath.IsAbs(target) {
		target = filepath.Join(devChar, target)
	}
	here := filepath.Join(d.HostRoot, target)
	if inDriver, err := filepath.Rel(d.InstallDir, target); err == nil && filepath.IsLocal(inDriver) {
		here = filepath.Join(d.DriverRoot, inDriver)
	}
	found, err := d.device(here)
	return err == nil && found == device
}
