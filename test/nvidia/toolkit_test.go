//go:build linux

package nvidia

import (
	"encoding/json"
	"testing"

	. "github.com/onsi/gomega"
)

// cdiSpec is a description of devices, as far as tests read it.
type cdiSpec struct {
	Kind    string `json:"kind"`
	Devices []struct {
		Name           string   `json:"name"`
		ContainerEdits cdiEdits `json:"containerEdits"`
	} `json:"devices"`
	ContainerEdits cdiEdits `json:"containerEdits"`
}

type cdiEdits struct {
	DeviceNodes []struct {
		Path string `json:"path"`
	} `json:"deviceNodes"`
	Mounts []struct {
		HostPath string `json:"hostPath"`
	} `json:"mounts"`
}

// names returns the names of the devices, and paths the device nodes of each.
func (s cdiSpec) names() (names []string, paths map[string][]string) {
	paths = map[string][]string{}
	for _, device := range s.Devices {
		names = append(names, device.Name)
		for _, node := range device.ContainerEdits.DeviceNodes {
			paths[device.Name] = append(paths[device.Name], node.Path)
		}
	}
	return names, paths
}

// describe makes the toolkit describe the devices of a machine in a mode.
func (m *machine) describe(args ...string) cdiSpec {
	m.t.Helper()
	g := NewWithT(m.t)
	output := m.dir + "/cdi.json"
	m.mustRun(nil, "nvidia-ctk", append([]string{
		"cdi", "generate", "--format=json", "--output=" + output, "--driver-root=" + m.root, "--dev-root=/",
		"--nvidia-cdi-hook-path=/usr/local/nvidia/toolkit/nvidia-cdi-hook",
	}, args...)...)
	var found cdiSpec
	g.Expect(json.Unmarshal([]byte(readFile(m.t, output)), &found)).To(Succeed())
	return found
}

func TestTheToolkitDescribesDevices(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	m := newMachine(t, h100)
	found := m.describe()
	names, paths := found.names()
	g.Expect(found.Kind).To(Equal("nvidia.com/gpu"))
	g.Expect(names).To(ConsistOf("0", "1", "2", "3", uuid(0), uuid(1), uuid(2), uuid(3), "all"))
	g.Expect(paths).To(HaveKeyWithValue("2", ContainElement("/dev/nvidia2")))
	g.Expect(found.ContainerEdits.Mounts).To(ContainElement(
		HaveField("HostPath", ContainSubstring("/usr/bin/nvidia-smi"))))

	m.mustPartition("first-only")
	names, paths = m.describe().names()
	g.Expect(names).To(ContainElements("0:0", "0:6", "1"))
	g.Expect(names).NotTo(ContainElement("0"), "a GPU with MIG devices is not given as a whole")
	g.Expect(paths).To(HaveKeyWithValue("0:0", ContainElement(HavePrefix("/dev/nvidia-caps/nvidia-cap"))))
	m.knowsAll()
}

// What the containers of the stack get: all of the driver.
func TestTheToolkitDescribesTheDriver(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	m := newMachine(t, h100)
	found := m.describe("--mode=management", "--vendor=management.nvidia.com", "--class=gpu")
	names, paths := found.names()
	g.Expect(found.Kind).To(Equal("management.nvidia.com/gpu"))
	g.Expect(names).To(ConsistOf("all"))
	g.Expect(paths["all"]).To(ContainElements("/dev/nvidia0", "/dev/nvidia3", "/dev/nvidiactl"))
	m.knowsAll()
}
