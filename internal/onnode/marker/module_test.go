package marker

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// A marker is refused while the kernel module that the driver was validated with is not loaded, though the driver
// instance is still the same: that of a driver container which has started again in its pod, or none for the host.
func TestMarkersNeedTheirModule(t *testing.T) {
	const before, now = "580.1", "580.2"
	const gone = "the kernel module nvidia, with which the driver was validated, is not loaded any more"
	for name, test := range map[string]struct {
		// version and state are those of the loaded module; no module if both are empty.
		version, state string
		// named is the version in the driver's marker; nil for a marker that names no module.
		named *string
		read  labels.Marker
		fails string
	}{
		"loaded":                    {version: before, state: "live", named: new(before), read: "driver"},
		"another marker":            {version: before, state: "live", named: new(before), read: "toolkit"},
		"unloaded":                  {named: new(before), read: "driver", fails: "driver-ready is stale: " + gone},
		"unloaded, another marker":  {named: new(before), read: "toolkit", fails: "toolkit-ready is stale: " + gone},
		"unloaded, Mellanox driver": {named: new(before), read: "mofed"},
		"being unloaded":            {version: before, state: "going", named: new(before), read: "driver", fails: gone},
		"being loaded":              {version: before, state: "coming", named: new(before), read: "driver", fails: gone},
		"another version": {version: now, state: "live", named: new(before), read: "driver",
			fails: "validated with version 580.1 of the kernel module nvidia, now 580.2 is loaded"},
		"a module without a version":          {state: "live", named: new(""), read: "driver"},
		"one without a version, and unloaded": {named: new(""), read: "driver", fails: gone},
		"WSL, which has no module":            {read: "driver"},
		"WSL, another marker":                 {read: "toolkit"},
	} {
		t.Run(name, func(t *testing.T) {
			g, sys := NewWithT(t), t.TempDir()
			if test.state != "" {
				dir := filepath.Join(sys, "module", "nvidia")
				g.Expect(os.MkdirAll(dir, 0o700)).To(Succeed())
				g.Expect(os.WriteFile(filepath.Join(dir, "initstate"), []byte(test.state+"\n"), 0o600)).To(Succeed())
				if test.version != "" {
					g.Expect(os.WriteFile(filepath.Join(dir, "version"), []byte(test.version+"\n"), 0o600)).To(Succeed())
				}
			}
			markers := Dir{Path: t.TempDir(), BootID: "boot", SysRoot: sys}
			var assignments []Assignment
			if test.named != nil {
				assignments = []Assignment{{Key: "DRIVER_MODULE", Value: *test.named}}
			}
			g.Expect(markers.Write(labels.MarkerDriver, assignments, "")).To(Succeed())
			if test.read != labels.MarkerDriver {
				g.Expect(markers.Write(test.read, nil, "")).To(Succeed())
			}
			_, err := markers.Read(test.read)
			if test.fails == "" {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(ContainSubstring(test.fails)))
			}
			markers.SysRoot = ""
			_, err = markers.Read(test.read)
			g.Expect(err).NotTo(HaveOccurred(), "the modules are not looked at")
		})
	}
}

// A marker that depends on a driver which is not validated any more is judged by itself.
func TestMarkersBesideAStaleDriver(t *testing.T) {
	g := NewWithT(t)
	markers := Dir{Path: t.TempDir(), BootID: "boot", SysRoot: t.TempDir()}
	g.Expect(markers.Write(labels.MarkerToolkit, nil, "")).To(Succeed())
	_, err := markers.Read(labels.MarkerToolkit)
	g.Expect(err).NotTo(HaveOccurred(), "no marker of the driver")
	earlier := Dir{Path: markers.Path, BootID: "earlier"}
	g.Expect(earlier.Write(labels.MarkerDriver, []Assignment{{Key: "DRIVER_MODULE", Value: "580.1"}}, "")).To(Succeed())
	_, err = markers.Read(labels.MarkerToolkit)
	g.Expect(err).NotTo(HaveOccurred(), "one of another boot")
}
