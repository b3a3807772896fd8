package discover

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

const (
	ubuntu = "PRETTY_NAME=\"Ubuntu 24.04.1 LTS\"\nID=ubuntu\nID_LIKE=debian\nVERSION_ID=\"24.04\"\n"
	rhcos  = "ID=\"rhcos\"\nVERSION_ID=\"4.18\"\nOSTREE_VERSION='418.94.202501221327-0'\n"
)

// machine is a node, in the form of its file systems.
type machine struct{ root string }

// newMachine is a server with the CPU's own devices.
func newMachine(t *testing.T, kernel, osRelease string) machine {
	t.Helper()
	m := machine{root: t.TempDir()}
	m.put(t, "proc/sys/kernel/osrelease", kernel+"\n")
	m.put(t, "host/etc/os-release", osRelease)
	m.add(t, "0000:00:00.0", "0x8086", "0x060000", "")
	m.add(t, "0000:00:1f.6", "0x8086", "0x020000", "e1000e")
	return m
}

func (m machine) host() Host {
	return Host{
		SysRoot: filepath.Join(m.root, "sys"), ProcRoot: filepath.Join(m.root, "proc"), Root: filepath.Join(m.root, "host"),
	}
}

func (m machine) put(t *testing.T, path, content string) {
	t.Helper()
	g := NewWithT(t)
	path = filepath.Join(m.root, path)
	g.Expect(os.MkdirAll(filepath.Dir(path), 0o755)).To(Succeed())
	g.Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
}

// add adds a PCI device as the kernel does: a link on the bus to a complete device.
func (m machine) add(t *testing.T, address, vendor, class, driver string) {
	t.Helper()
	g := NewWithT(t)
	device := "sys/devices/pci0000:00/" + address
	m.put(t, device+"/vendor", vendor+"\n")
	m.put(t, device+"/class", class+"\n")
	if driver != "" {
		m.put(t, "sys/bus/pci/drivers/"+driver+"/bind", "")
		g.Expect(os.Symlink("../../../bus/pci/drivers/"+driver, filepath.Join(m.root, device, "driver"))).To(Succeed())
	}
	bus := filepath.Join(m.root, "sys/bus/pci/devices")
	g.Expect(os.MkdirAll(bus, 0o755)).To(Succeed())
	g.Expect(os.Symlink("../../../devices/pci0000:00/"+address, filepath.Join(bus, address))).To(Succeed())
}

func (m machine) remove(t *testing.T, address string) {
	t.Helper()
	g := NewWithT(t)
	g.Expect(os.Remove(filepath.Join(m.root, "sys/bus/pci/devices", address))).To(Succeed())
	g.Expect(os.RemoveAll(filepath.Join(m.root, "sys/devices/pci0000:00", address))).To(Succeed())
}

func gpu(number int) string { return fmt.Sprintf("0000:%x:00.0", 0x18+number) }

// withH100s adds eight GPUs with their four NVSwitches and eight network adapters.
func withH100s(t *testing.T, m machine) machine {
	t.Helper()
	for i := range 8 {
		m.add(t, gpu(i), "0x10de", "0x030200", "nvidia")
		m.add(t, fmt.Sprintf("0000:%x:00.0", 0x38+i), "0x15b3", "0x020700", "mlx5_core")
	}
	for i := range 4 {
		m.add(t, fmt.Sprintf("0000:%x:00.0", 0x07+i), "0x10de", "0x068000", "nvidia")
	}
	return m
}

var (
	ubuntuLabels = map[string]string{
		"feature.node.kubernetes.io/kernel-version.full":                "6.8.0-45-generic",
		"feature.node.kubernetes.io/system-os_release.ID":               "ubuntu",
		"feature.node.kubernetes.io/system-os_release.VERSION_ID":       "24.04",
		"feature.node.kubernetes.io/system-os_release.VERSION_ID.major": "24",
		"feature.node.kubernetes.io/system-os_release.VERSION_ID.minor": "04",
	}
	gpu3D    = map[string]string{labels.DiscoveryPCIPresent: "true", labels.DiscoveryPCI3D: "true"}
	gpuVGA   = map[string]string{labels.DiscoveryPCIPresent: "true", labels.DiscoveryPCIVGA: "true"}
	mellanox = map[string]string{labels.DiscoveryPCIMellanox: "true"}
)

func union(all ...map[string]string) map[string]string {
	sum := map[string]string{}
	for _, one := range all {
		maps.Copy(sum, one)
	}
	return sum
}

func TestFactsOfMachines(t *testing.T) {
	ubuntuMachine := func(t *testing.T) machine {
		t.Helper()
		return newMachine(t, "6.8.0-45-generic", ubuntu)
	}
	tests := map[string]struct {
		machine func(t *testing.T) machine
		want    map[string]string
		noGPU   bool
	}{
		"eight H100 with NVSwitches and InfiniBand": {
			machine: func(t *testing.T) machine { return withH100s(t, ubuntuMachine(t)) },
			want:    union(ubuntuLabels, gpu3D, mellanox),
		},
		"a guest with a vGPU": {
			machine: func(t *testing.T) machine {
				m := ubuntuMachine(t)
				m.add(t, "0000:02:01.0", "0x10de", "0x030000", "nvidia")
				return m
			},
			want: union(ubuntuLabels, gpuVGA),
		},
		"GPUs for virtual machines, of both classes": {
			machine: func(t *testing.T) machine {
				m := ubuntuMachine(t)
				m.add(t, "0000:3b:00.0", "0x10de", "0x030200", "vfio-pci")
				m.add(t, "0000:5e:00.0", "0x10de", "0x030000", "vfio-pci")
				m.add(t, "0000:5e:00.1", "0x10de", "0x040300", "vfio-pci")
				return m
			},
			want: union(ubuntuLabels, gpu3D, gpuVGA),
		},
		"no GPU": {
			machine: ubuntuMachine, want: ubuntuLabels, noGPU: true,
		},
		"a display controller and a GPU of others": {
			machine: func(t *testing.T) machine {
				m := ubuntuMachine(t)
				m.add(t, "0000:04:00.0", "0x1a03", "0x030000", "ast")
				m.add(t, "0000:05:00.0", "0x1002", "0x038000", "amdgpu")
				return m
			},
			want: ubuntuLabels, noGPU: true,
		},
		"one of eight GPUs has fallen off the bus": {
			machine: func(t *testing.T) machine {
				m := withH100s(t, ubuntuMachine(t))
				m.remove(t, gpu(3))
				return m
			},
			want: union(ubuntuLabels, gpu3D, mellanox),
		},
		"all GPUs have gone, the NVSwitches have not": {
			machine: func(t *testing.T) machine {
				m := withH100s(t, ubuntuMachine(t))
				for i := range 8 {
					m.remove(t, gpu(i))
				}
				return m
			},
			want: union(ubuntuLabels, mellanox), noGPU: true,
		},
		"a Grace Hopper with pages of 64 KiB": {
			machine: func(t *testing.T) machine {
				m := newMachine(t, "6.8.0-1013-nvidia-64k", ubuntu)
				m.add(t, "0009:01:00.0", "0x10de", "0x030200", "nvidia")
				// The root port of the CPU is NVIDIA's too.
				m.add(t, "0009:00:00.0", "0x10de", "0x060400", "pcieport")
				return m
			},
			want: union(ubuntuLabels, gpu3D, map[string]string{labels.DiscoveryKernel: "6.8.0-1013-nvidia-64k"}),
		},
		"Windows Subsystem for Linux": {
			machine: func(t *testing.T) machine {
				m := newMachine(t, "5.15.153.1-microsoft-standard-WSL2", ubuntu)
				m.put(t, "host/usr/lib/wsl/lib/libcuda.so.1", "")
				return m
			},
			want: union(ubuntuLabels, map[string]string{
				labels.DiscoveryKernel: "5.15.153.1-microsoft-standard-WSL2", labels.DiscoveryPCIPresent: "true",
			}),
		},
		"Windows Subsystem for Linux without a driver": {
			machine: func(t *testing.T) machine {
				m := newMachine(t, "5.15.153.1-microsoft-standard-WSL2", ubuntu)
				m.put(t, "host/usr/lib/wsl/lib/libd3d12.so", "")
				return m
			},
			want:  union(ubuntuLabels, map[string]string{labels.DiscoveryKernel: "5.15.153.1-microsoft-standard-WSL2"}),
			noGPU: true,
		},
		"a directory of that name on another kernel": {
			machine: func(t *testing.T) machine {
				m := ubuntuMachine(t)
				m.put(t, "host/usr/lib/wsl/lib/libcuda.so.1", "")
				return m
			},
			want: ubuntuLabels, noGPU: true,
		},
		"a node of NVSwitches only": {
			machine: func(t *testing.T) machine {
				m := ubuntuMachine(t)
				m.add(t, "0000:07:00.0", "0x10de", "0x068000", "vfio-pci")
				return m
			},
			want: ubuntuLabels, noGPU: true,
		},
		"Red Hat CoreOS with an Ethernet adapter of Mellanox": {
			machine: func(t *testing.T) machine {
				m := newMachine(t, "5.14.0-427.50.1.el9_4.x86_64", rhcos)
				m.add(t, "0000:3b:00.0", "0x10de", "0x030200", "")
				m.add(t, "0000:5e:00.0", "0x15b3", "0x020000", "mlx5_core")
				return m
			},
			want: union(gpu3D, mellanox, map[string]string{
				labels.DiscoveryKernel: "5.14.0-427.50.1.el9_4.x86_64",
				labels.DiscoveryOSID:   "rhcos", labels.DiscoveryOSTree: "418.94.202501221327-0",
				labels.DiscoveryOSVersion: "4.18", labels.DiscoveryOSVersionMajor: "4", labels.DiscoveryOSVersionMinor: "18",
			}),
		},
		"a release that is made of one number, a kernel with a plus sign": {
			machine: func(t *testing.T) machine { return newMachine(t, "6.1.0-rc3+", "ID=debian\nVERSION_ID=12\n") },
			want: map[string]string{
				labels.DiscoveryKernel: "6.1.0-rc3", labels.DiscoveryOSID: "debian",
				labels.DiscoveryOSVersion: "12", labels.DiscoveryOSVersionMajor: "12",
			},
			noGPU: true,
		},
		"a release without a version": {
			machine: func(t *testing.T) machine { return newMachine(t, "6.12.1~arch1 x", "ID=arch\n") },
			want:    map[string]string{labels.DiscoveryKernel: "6.12.1_arch1_x", labels.DiscoveryOSID: "arch"}, noGPU: true,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got := tc.machine(t).host().Findings()
			g.Expect(got.Labels).To(Equal(tc.want))
			g.Expect(got.NoGPU).To(Equal(tc.noGPU))
			g.Expect(got.Unknown).To(BeEmpty())
			g.Expect(got.Problems).To(BeEmpty())
			for key, value := range got.Labels {
				g.Expect(validation.IsQualifiedName(key)).To(BeEmpty())
				g.Expect(validation.IsValidLabelValue(value)).To(BeEmpty())
				g.Expect(labels.IsDiscoverable(key)).To(BeTrue(), key)
				g.Expect(labels.IsNodeFact(key)).To(BeTrue(), key)
			}
		})
	}
}

func TestFactsThatCannotBeRead(t *testing.T) {
	osKeys := []string{
		labels.DiscoveryOSID, labels.DiscoveryOSVersion, labels.DiscoveryOSVersionMajor, labels.DiscoveryOSVersionMinor,
		labels.DiscoveryOSTree,
	}
	pciKeys := []string{
		labels.DiscoveryPCIPresent, labels.DiscoveryPCI3D, labels.DiscoveryPCIVGA, labels.DiscoveryPCIMellanox,
	}
	tests := map[string]struct {
		damage  func(t *testing.T, m machine)
		lost    []string // Of the labels of eight H100.
		unknown []string
		problem string
	}{
		"no sysfs": {
			damage: func(t *testing.T, m machine) { NewWithT(t).Expect(os.RemoveAll(m.root + "/sys")).To(Succeed()) },
			lost:   pciKeys, unknown: pciKeys, problem: "the PCI devices cannot be listed; is sysfs mounted at ",
		},
		"one GPU cannot be read": {
			damage: func(t *testing.T, m machine) {
				NewWithT(t).Expect(os.Remove(m.root + "/sys/devices/pci0000:00/" + gpu(2) + "/class")).To(Succeed())
			},
			// The others are labelled; the class of this one is unknown.
			unknown: []string{labels.DiscoveryPCIVGA}, problem: "a PCI device cannot be read: open ",
		},
		"no procfs": {
			damage: func(t *testing.T, m machine) { NewWithT(t).Expect(os.RemoveAll(m.root + "/proc")).To(Succeed()) },
			lost:   []string{labels.DiscoveryKernel}, unknown: []string{labels.DiscoveryKernel},
			problem: "the kernel's release cannot be read; is procfs mounted at ",
		},
		"no os-release": {
			damage: func(t *testing.T, m machine) { NewWithT(t).Expect(os.RemoveAll(m.root + "/host")).To(Succeed()) },
			lost:   osKeys, unknown: osKeys, problem: "there is neither etc/os-release nor usr/lib/os-release in ",
		},
		"an os-release with a malformed line": {
			damage:  func(t *testing.T, m machine) { m.put(t, "host/etc/os-release", "OSTREE_VERSION=\"4\n"+ubuntu) },
			unknown: []string{labels.DiscoveryOSTree},
			problem: "etc/os-release does not have the format of os-release(5): line 1 is",
		},
		"a version that is not valid in a label": {
			damage: func(t *testing.T, m machine) { m.put(t, "host/etc/os-release", "ID=ubuntu\nVERSION_ID='24.04 LTS'\n") },
			// It is split all the same, as NFD does.
			lost:    []string{labels.DiscoveryOSVersion, labels.DiscoveryOSVersionMinor},
			problem: `VERSION_ID is left out: "24.04 LTS" is not a valid label value`,
		},
		"a kernel whose name is too long": {
			damage: func(t *testing.T, m machine) {
				m.put(t, "proc/sys/kernel/osrelease", "6.8."+strings.Repeat("0", 60))
			},
			lost: []string{labels.DiscoveryKernel}, problem: "kernel-version.full is left out",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			m := withH100s(t, newMachine(t, "6.8.0-45-generic", ubuntu))
			tc.damage(t, m)
			want := union(ubuntuLabels, gpu3D, mellanox)
			for _, key := range tc.lost {
				delete(want, key)
			}
			got := m.host().Findings()
			g.Expect(got.Labels).To(Equal(want))
			g.Expect(got.NoGPU).To(BeFalse(), "it is unknown")
			unknown := map[string]bool{}
			for _, key := range tc.unknown {
				unknown[key] = true
			}
			g.Expect(got.Unknown).To(Equal(unknown))
			g.Expect(got.Problems).To(ConsistOf(ContainSubstring(tc.problem)))
		})
	}
}

func TestFactsOfThisMachine(t *testing.T) {
	if _, err := os.Stat("/etc/os-release"); errors.Is(err, fs.ErrNotExist) {
		t.Skip("needs a Linux distribution")
	}
	g := NewWithT(t)
	got := Host{SysRoot: "/sys", ProcRoot: "/proc", Root: "/"}.Findings()
	g.Expect(got.Problems).To(BeEmpty())
	g.Expect(got.Labels).To(HaveKey(labels.DiscoveryKernel))
	g.Expect(got.Labels).To(HaveKey(labels.DiscoveryOSID))
}

// Only GPUs for containers are counted: not those that are passed through to virtual machines, nor switches, nor the
// card for the display of a machine with data center GPUs.
func TestGPUsOnTheBus(t *testing.T) {
	g := NewWithT(t)
	m := withH100s(t, newMachine(t, "6.8.0-45-generic", ubuntu))
	all := m.host().Findings()
	g.Expect(all.GPUsOnBus).To(Equal(8))
	m.remove(t, gpu(0))
	m.remove(t, gpu(1))
	m.add(t, gpu(1), "0x10de", "0x030200", "vfio-pci")
	m.remove(t, gpu(2))
	m.add(t, gpu(2), "0x10de", "0x030200", "")
	m.add(t, "0000:c1:00.0", "0x10de", "0x030000", "nvidia")
	fewer := m.host().Findings()
	g.Expect(fewer.GPUsOnBus).To(Equal(5))
	g.Expect(fewer.Same(all)).To(BeFalse())
	g.Expect(newMachine(t, "6.8.0-45-generic", ubuntu).host().Findings().GPUsOnBus).To(BeZero())
}
