package cleanup_test

import (
	"testing"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/cleanup"
)

// The kernel's own format, with a driver that nothing but its modules uses, and one that a program uses.
const (
	idle = "nvidia_uvm 3481600 0 - Live 0x0000000000000000 (POE)\n" +
		"nvidia_modeset 1716224 0 - Live 0x0000000000000000 (POE)\n" +
		"nvidia 104071168 2 nvidia_uvm,nvidia_modeset, Live 0x0000000000000000 (POE)\n" +
		"ext4 1052672 2 - Live 0x0000000000000000\n"
	used = "nvidia_uvm 3481600 0 - Live 0x0000000000000000 (POE)\n" +
		"nvidia 104071168 17 nvidia_uvm, Live 0x0000000000000000 (POE)\n"
)

func TestLinksToDevices(t *testing.T) {
	const name, unfinished = "dev/char/195:0", "dev/char/.nvidia-195:0"
	for what, test := range map[string]struct {
		target, modules string
		// device exists on the host.
		device  string
		removed bool
		left    types.GomegaMatcher
	}{
		"to a device that is gone": {target: "../nvidia0", removed: true, left: BeEmpty()},
		"to a device of an idle driver": {
			target: "../nvidia0", device: "dev/nvidia0", modules: idle, removed: true, left: BeEmpty()},
		"to a device of a driver that is used": {
			target: "../nvidia0", device: "dev/nvidia0", modules: used,
			left: left("/"+name, "the driver is used", "/"+unfinished, "the driver is used")},
		"to a device of the driver's root": {
			target: "/run/nvidia/driver/dev/nvidia0", modules: used, removed: true, left: BeEmpty()},
		"that the administrator has made":        {target: "/dev/nvidia0", left: BeEmpty()},
		"none, but a device":                     {left: BeEmpty()},
		"to another device":                      {target: "../fb0", left: BeEmpty()},
		"out of /dev":                            {target: "../../etc/nvidia0", left: BeEmpty()},
		"to another program's in the same place": {target: "/run/other/dev/nvidia0", left: BeEmpty()},
	} {
		t.Run(what, func(t *testing.T) {
			g, host := NewWithT(t), newTree(t)
			host.operatingSystem()
			for _, name := range []string{name, unfinished} {
				if test.target != "" {
					host.link(test.target, name)
				} else {
					host.write(name, "")
				}
			}
			if test.device != "" {
				host.write(test.device, "")
			}
			host.write("proc/modules", test.modules)
			g.Expect(host.clean().Left).To(test.left)
			if test.removed {
				g.Expect(host.files()).NotTo(Or(HaveKey(name), HaveKey(unfinished)))
			} else {
				g.Expect(host.files()).To(And(HaveKey(name), HaveKey(unfinished)))
			}
			g.Expect(host.files()).To(HaveKey("dev/char/1:3"))
		})
	}
}

func TestModulesAreReported(t *testing.T) {
	g, host := NewWithT(t), newTree(t)
	host.operatingSystem()
	host.write("proc/modules", idle+"gdrdrv 1 0 -\nnvidia_fs 1 0\n")
	report := host.clean()
	g.Expect(report.Modules).To(Equal([]cleanup.Module{
		{Name: "nvidia_uvm", References: "0", Users: []string{}},
		{Name: "nvidia_modeset", References: "0", Users: []string{}},
		{Name: "nvidia", References: "2", Users: []string{"nvidia_uvm", "nvidia_modeset"}},
		{Name: "gdrdrv", References: "0", Users: []string{}},
	}))
	g.Expect(report.Text(4000)).To(Equal("kernel modules that stay loaded: nvidia_uvm (references: 0), " +
		"nvidia_modeset (references: 0), nvidia (references: 2), gdrdrv (references: 0); " +
		"unless they belong to the host's own driver, unload them or restart the node"))
}
