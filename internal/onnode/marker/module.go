package marker

import (
	"fmt"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/kmod"
)

// ModuleOf returns the version of the kernel module that the assignments of the driver's marker hold for, and whether
// they name one.
func ModuleOf(assignments []Assignment) (version string, named bool) {
	return lookup(assignments, labels.DriverModuleKey)
}

// currentDriver returns the driver's marker, and whether it is of this boot and of the current driver instance.
func (d Dir) currentDriver() (file, bool) {
	found, err := d.parse(labels.MarkerDriver.File())
	return found, err == nil && d.current(found) == nil
}

// checkModule returns nil if the kernel module that the driver's marker holds for is loaded. A marker can outlive it:
// the driver container may end without its hook and start again in its pod, which is the same driver instance, and
// the module of a driver on the host may be unloaded. The Mellanox driver comes before the driver.
func (d Dir) checkModule(m labels.Marker, found file) error {
	if d.SysRoot == "" || m == labels.MarkerMOFED {
		return nil
	}
	driver, known := found, true
	if m != labels.MarkerDriver {
		driver, known = d.currentDriver()
	}
	validated, named := ModuleOf(driver.assignments)
	switch loaded := kmod.Version(d.SysRoot, kmod.Driver); {
	case !known || !named:
		// One that can be trusted does not depend on a driver's marker that cannot.
		return nil
	case !kmod.Loaded(d.SysRoot, kmod.Driver):
		return fmt.Errorf("%s is stale: the kernel module %s, with which the driver was validated, is not loaded any more",
			found.name, kmod.Driver)
	case validated != "" && loaded != "" && validated != loaded:
		return fmt.Errorf("%s is stale: the driver was validated with version %s of the kernel module %s, now %s is loaded",
			found.name, validated, kmod.Driver, loaded)
	}
	return nil
}
