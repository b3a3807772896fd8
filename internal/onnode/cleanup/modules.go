package cleanup

import (
	"fmt"
	"slices"
	"strings"
)

// driverModules are the kernel modules that the driver's containers load.
var driverModules = []string{
	"nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm", "nvidia_peermem", "nvidia_fs", "gdrdrv", "nvidia_vgpu_vfio",
}

const driverModule = "nvidia"

// Module is a kernel module that is loaded.
type Module struct {
	Name string
	// References is the number of its users, as the kernel shows it.
	References string
	// Users are the modules among them.
	Users []string
}

// modulesIn returns the driver's modules in the text of /proc/modules, whose lines are: name, size, number of
// references, names of the modules among them, state.
func modulesIn(text string) []Module {
	var found []Module
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 4 || !slices.Contains(driverModules, fields[0]) {
			continue
		}
		users := strings.FieldsFunc(strings.Trim(fields[3], "-"), func(r rune) bool { return r == ',' })
		found = append(found, Module{Name: fields[0], References: fields[2], Users: users})
	}
	return found
}

// driverInUse reports whether something other than the driver's own modules uses the driver.
func driverInUse(modules []Module) bool {
	for _, module := range modules {
		if module.Name == driverModule && module.References != fmt.Sprint(len(module.Users)) {
			return true
		}
	}
	return false
}

func modulesLine(modules []Module) string {
	names := make([]string, 0, len(modules))
	for _, module := range modules {
		names = append(names, fmt.Sprintf("%s (references: %s)", module.Name, module.References))
	}
	return "kernel modules that stay loaded: " + strings.Join(names, ", ") +
		"; unless they belong to the host's own driver, unload them or restart the node"
}
