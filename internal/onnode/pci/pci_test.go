package pci_test

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/pci"
)

func write(t *testing.T, root, path, content string) {
	t.Helper()
	g := NewWithT(t)
	path = filepath.Join(root, path)
	g.Expect(os.MkdirAll(filepath.Dir(path), 0o755)).To(Succeed())
	g.Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
}

func TestDevices(t *testing.T) {
	const dir = "bus/pci/devices/"
	tests := map[string]struct {
		files map[string]string
		want  []pci.Device
		err   string
	}{
		"reads vendor, class and subclass": {
			files: map[string]string{
				dir + "0000:3b:00.0/vendor": "0x10de\n", dir + "0000:3b:00.0/class": "0x030200\n",
				dir + "0000:00:1f.0/vendor": "0x8086\n", dir + "0000:00:1f.0/class": "0x060100\n",
			},
			want: []pci.Device{
				{Address: "0000:00:1f.0", Vendor: 0x8086, Class: 0x0601},
				{Address: "0000:3b:00.0", Vendor: 0x10de, Class: 0x0302},
			},
		},
		"finds none where the kernel has no PCI": {
			files: map[string]string{"bus/platform/drivers_probe": ""}, want: nil,
		},
		"names sysfs where it is missing": {
			files: map[string]string{"kernel": ""}, err: "the PCI devices cannot be listed; is sysfs mounted at ",
		},
		"names sysfs where the list is no directory": {
			files: map[string]string{"bus/pci/devices": ""}, err: "the PCI devices cannot be listed",
		},
		"names a device without a class, and reads the others": {
			files: map[string]string{
				dir + "a/vendor": "0x10de\n",
				dir + "b/vendor": "0x10de\n", dir + "b/class": "0x030000\n",
			},
			want: []pci.Device{{Address: "b", Vendor: 0x10de, Class: 0x0300}}, err: "a PCI device cannot be read: open ",
		},
		"names a vendor that is no number": {
			files: map[string]string{dir + "a/vendor": "NVIDIA\n", dir + "a/class": "0x030000\n"},
			want:  []pci.Device{}, err: `a/vendor is "NVIDIA\n", not a number of 16 bits`,
		},
		"names a class that is too large": {
			files: map[string]string{dir + "a/vendor": "0x10de\n", dir + "a/class": "0x1030000\n"},
			want:  []pci.Device{}, err: `a/class is "0x1030000\n", not a number of 24 bits`,
		},
		"names an attribute that is a directory": {
			files: map[string]string{dir + "a/vendor/x": ""}, want: []pci.Device{}, err: "is a directory",
		},
		"counts the devices that it does not name": {
			files: map[string]string{dir + "a/vendor": "", dir + "b/vendor": "", dir + "c/vendor": ""},
			want:  []pci.Device{}, err: "(and 2 more devices)",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			root := t.TempDir()
			for path, content := range tc.files {
				write(t, root, path, content)
			}
			got, err := pci.Devices(root)
			g.Expect(got).To(Equal(tc.want))
			if tc.err == "" {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(ContainSubstring(tc.err)))
			}
		})
	}
}

// In sysfs each device is a link; a dangling one has just been removed.
func TestDevicesIgnoresADeviceThatIsBeingRemoved(t *testing.T) {
	g := NewWithT(t)
	root := t.TempDir()
	write(t, root, "devices/pci0000:00/a/vendor", "0x10de\n")
	write(t, root, "devices/pci0000:00/a/class", "0x030200\n")
	devices := filepath.Join(root, "bus/pci/devices")
	g.Expect(os.MkdirAll(devices, 0o755)).To(Succeed())
	g.Expect(os.Symlink("../../../devices/pci0000:00/a", filepath.Join(devices, "a"))).To(Succeed())
	g.Expect(os.Symlink("../../../devices/pci0000:00/b", filepath.Join(devices, "b"))).To(Succeed())
	g.Expect(pci.Devices(root)).To(Equal([]pci.Device{{Address: "a", Vendor: 0x10de, Class: 0x0302}}))
}

// One device that cannot be read does not hide the GPUs, and matters only if it belongs to the driver nvidia.
func TestBoundGPUsBesideUnreadableDevices(t *testing.T) {
	const dir = "bus/pci/devices/"
	for name, tc := range map[string]struct {
		vendor, driver string
		err            string
	}{
		"of no driver":                     {},
		"of another driver":                {driver: "mlx5_core"},
		"of the driver":                    {driver: "nvidia", err: "a PCI device cannot be read: "},
		"of the driver, but for its class": {vendor: "0x10de\n", driver: "nvidia", err: "a PCI device cannot be read: "},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			root := t.TempDir()
			bind := func(address, driver string) {
				g.Expect(os.Symlink("../../drivers/"+driver, filepath.Join(root, dir, address, "driver"))).To(Succeed())
			}
			// A GPU, its virtual function, and a GPU for a virtual machine.
			for address, driver := range map[string]string{
				"0000:07:00.0": "nvidia", "0000:07:00.4": "nvidia", "0000:09:00.0": "vfio-pci",
			} {
				write(t, root, dir+address+"/vendor", "0x10de\n")
				write(t, root, dir+address+"/class", "0x030200\n")
				bind(address, driver)
			}
			g.Expect(os.Symlink("../0000:07:00.0", filepath.Join(root, dir, "0000:07:00.4/physfn"))).To(Succeed())
			write(t, root, dir+"0000:08:00.0/vendor", tc.vendor)
			if tc.driver != "" {
				bind("0000:08:00.0", tc.driver)
			}
			got, err := pci.BoundGPUs(root)
			g.Expect(got).To(Equal([]string{"0000:07:00.0"}))
			if tc.err == "" {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(ContainSubstring(tc.err)))
			}
		})
	}
}

func TestBoundGPUsNeedSysfs(t *testing.T) {
	_, err := pci.BoundGPUs(t.TempDir())
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring("is sysfs mounted at ")))
}

func TestDevicesOfThisMachine(t *testing.T) {
	if _, err := os.Stat("/sys/bus/pci"); err != nil {
		t.Skip("needs a machine with PCI")
	}
	g := NewWithT(t)
	listed, err := os.ReadDir("/sys/bus/pci/devices")
	g.Expect(err).NotTo(HaveOccurred())
	got, err := pci.Devices("/sys")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(got).To(HaveLen(len(listed)))
}

func TestClassesOfDevices(t *testing.T) {
	tests := map[string]struct {
		device   pci.Device
		gpu, nic bool
	}{
		"a data center GPU":                 {device: pci.Device{Vendor: 0x10de, Class: 0x0302}, gpu: true},
		"a GPU with a display":              {device: pci.Device{Vendor: 0x10de, Class: 0x0300}, gpu: true},
		"an NVSwitch":                       {device: pci.Device{Vendor: 0x10de, Class: 0x0680}},
		"the audio function of a GPU":       {device: pci.Device{Vendor: 0x10de, Class: 0x0403}},
		"a GPU of AMD":                      {device: pci.Device{Vendor: 0x1002, Class: 0x0300}},
		"an Ethernet adapter of Mellanox":   {device: pci.Device{Vendor: 0x15b3, Class: 0x0200}, nic: true},
		"an InfiniBand adapter of Mellanox": {device: pci.Device{Vendor: 0x15b3, Class: 0x0207}, nic: true},
		"the bridge of a DPU":               {device: pci.Device{Vendor: 0x15b3, Class: 0x0604}},
		"a network adapter of Intel":        {device: pci.Device{Vendor: 0x8086, Class: 0x0200}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(tc.device.IsGPU()).To(Equal(tc.gpu))
			g.Expect(tc.device.IsMellanoxNIC()).To(Equal(tc.nic))
		})
	}
}

func FuzzDevices(f *testing.F) {
	f.Add([]byte("0x10de\n"), []byte("0x030200\n"))
	f.Add([]byte("0x10DE"), []byte("0x03"))
	f.Add([]byte(""), []byte("0x"))
	f.Add([]byte("0x-1\n"), []byte("0x_1\n"))
	f.Fuzz(func(t *testing.T, vendor, class []byte) {
		g := NewWithT(t)
		root := t.TempDir()
		write(t, root, "bus/pci/devices/a/vendor", string(vendor))
		write(t, root, "bus/pci/devices/a/class", string(class))
		got, err := pci.Devices(root)
		if err != nil {
			g.Expect(got).To(BeEmpty())
			return
		}
		g.Expect(got).To(HaveLen(1))
		g.Expect(string(vendor)).To(HavePrefix("0x"))
		g.Expect(string(class)).To(HavePrefix("0x"))
	})
}
