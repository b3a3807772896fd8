//go:build linux

package nvidia

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/test/fakegpu"
)

// sharing is a configuration of the device plugin that shares GPUs in time.
func sharing(resource string, replicas int, options string) string {
	return fmt.Sprintf("version: v1\nsharing:\n  timeSlicing:\n%s    resources:\n    - {name: %s, replicas: %d}\n",
		options, resource, replicas)
}

// sharingByMPS is a configuration of the device plugin that shares GPUs by the Multi-Process Service.
func sharingByMPS(replicas int) string {
	return strings.Replace(sharing("nvidia.com/gpu", replicas, ""), "timeSlicing", "mps", 1)
}

// uuid is the UUID of a GPU of the machine.
func uuid(gpu int) string {
	text := "GPU-N0N1N2N3-N4N5-N6N7-N8N9-NaNbNcNdNe00"
	return strings.ReplaceAll(text, "N", fmt.Sprint(gpu+1))
}

// states counts devices by their health.
func states(of event) map[string]int {
	found := map[string]int{}
	for _, state := range of.Devices {
		found[state]++
	}
	return found
}

func TestTheDevicePluginWithoutCDI(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	s := newMachine(t, h100).serve(nvidias, rendered(t, false, "single")...)
	gpus := s.advertised(1)["gpu"]
	g.Expect(slices.Sorted(maps.Keys(gpus.Devices))).To(Equal([]string{uuid(0), uuid(1), uuid(2), uuid(3)}))
	g.Expect(gpus.NUMA).To(HaveKeyWithValue(uuid(0), int64(0)))
	got := s.allocate("gpu", uuid(1), uuid(3))
	g.Expect(got.Error).To(BeEmpty())
	g.Expect(got.Allocated.Envs).To(HaveKeyWithValue("NVIDIA_VISIBLE_DEVICES", uuid(1)+","+uuid(3)))
	g.Expect(got.Allocated.CDI).To(BeEmpty())
	var paths []string
	for _, device := range got.Allocated.Devices {
		paths = append(paths, device.Host+" "+device.Permissions)
	}
	g.Expect(paths).To(ConsistOf("/dev/nvidiactl rw", "/dev/nvidia-uvm rw", "/dev/nvidia-uvm-tools rw",
		"/dev/nvidia-modeset rw", "/dev/nvidia1 rw", "/dev/nvidia3 rw"))
	g.Expect(s.prefer("gpu", 2, uuid(0), uuid(2), uuid(3))).To(HaveLen(2))
	g.Expect(s.allocate("gpu", "GPU-unknown").Error).To(ContainSubstring("unknown device: GPU-unknown"))
	s.knowsAll()
}

func TestTheDevicePluginWithCDI(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	s := newMachine(t, h100).serve(nvidias, rendered(t, true, "single")...)
	s.advertised(1)
	got := s.allocate("gpu", uuid(2)).Allocated
	const kind = "k8s.device-plugin.nvidia.com/gpu="
	g.Expect(got.CDI).To(ContainElement(HaveField("Name", kind+uuid(2))))
	g.Expect(slices.Collect(maps.Keys(got.Annotations))).To(ConsistOf(HavePrefix("cdi.k8s.io/nvidia-device-plugin_")))
	g.Expect(slices.Collect(maps.Values(got.Annotations))).To(ConsistOf(ContainSubstring(kind + uuid(2))))
	g.Expect(got.Envs).NotTo(HaveKey("NVIDIA_VISIBLE_DEVICES"))
	g.Expect(got.Devices).To(BeEmpty())
	spec := s.read("run/cdi/k8s.device-plugin.nvidia.com-gpu.json")
	g.Expect(spec).To(And(ContainSubstring(`"name":"`+uuid(2)+`"`), ContainSubstring(`"path":"/dev/nvidia2"`),
		ContainSubstring("/usr/local/nvidia/toolkit/nvidia-cdi-hook")))
	g.Expect(spec).NotTo(ContainSubstring(s.root), "paths of the host, not of the container")
	s.knowsAll()
}

func TestTheDevicePluginSharesGPUs(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		options  string
		resource string
		two      string // the error for a request of two shares
	}{
		"by default":       {resource: "gpu"},
		"under a new name": {options: "    renameByDefault: true\n", resource: "gpu.shared"},
		"one share each": {
			options: "    failRequestsGreaterThanOne: true\n", resource: "gpu",
			two: "invalid request: maximum request size for shared resources is 1; found 2",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			m := newMachine(t, h100)
			config := m.write("config.yaml", sharing("nvidia.com/gpu", 4, test.options))
			s := m.serve(nvidias, append(rendered(t, false, ""), "CONFIG_FILE="+config)...)
			found := s.advertised(1)
			g.Expect(found).To(HaveKey(test.resource))
			g.Expect(found[test.resource].Devices).To(HaveLen(16))
			g.Expect(found[test.resource].Devices).To(HaveKey(uuid(0) + "::3"))
			got := s.allocate(test.resource, uuid(0)+"::0", uuid(1)+"::2")
			if test.two != "" {
				g.Expect(got.Error).To(ContainSubstring(test.two))
				got = s.allocate(test.resource, uuid(0)+"::0")
			}
			g.Expect(got.Error).To(BeEmpty())
			g.Expect(got.Allocated.Envs["NVIDIA_VISIBLE_DEVICES"]).To(HavePrefix(uuid(0)))
			// A new configuration is read on SIGHUP.
			m.write("config.yaml", sharing("nvidia.com/gpu", 2, ""))
			g.Expect(s.plugin.Process.Signal(syscall.SIGHUP)).To(Succeed())
			s.next(func(e event) bool { return e.Resource == "nvidia.com/gpu" && len(e.Devices) == 8 })
			s.knowsAll()
		})
	}
}

// An XID marks a GPU as unhealthy until the plugin starts again; those of applications are no faults.
func TestTheDevicePluginReportsUnhealthyGPUs(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	s := newMachine(t, h100).serve(nvidias, rendered(t, true, "single")...)
	g.Expect(states(s.advertised(1)["gpu"])).To(Equal(map[string]int{"Healthy": 4}))
	s.listens(1)
	s.beside(fakegpu.Events, "0 13\n2 79\n")
	got := s.next(func(e event) bool { return e.Devices != nil })
	g.Expect(states(got)).To(Equal(map[string]int{"Healthy": 3, "Unhealthy": 1}))
	g.Expect(got.Devices).To(HaveKeyWithValue(uuid(2), "Unhealthy"))
	g.Eventually(s.plugin.log.String, patience).Should(ContainSubstring("XidCriticalError: Xid=79 on Device=" + uuid(2)))
	s.knowsAll()
}

// Of a shared GPU, the plugin marks one share alone.
func TestTheDevicePluginReportsOneShareOfAnUnhealthyGPU(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	m := newMachine(t, h100)
	config := m.write("config.yaml", sharing("nvidia.com/gpu", 4, ""))
	s := m.serve(nvidias, append(rendered(t, true, ""), "CONFIG_FILE="+config)...)
	s.advertised(1)
	s.listens(1)
	s.beside(fakegpu.Events, "2 79\n")
	got := s.next(func(e event) bool { return e.Devices != nil })
	g.Expect(states(got)).To(Equal(map[string]int{"Healthy": 15, "Unhealthy": 1}))
}

// A GPU whose driver does not answer ends the plugin, as FAIL_ON_INIT_ERROR is true.
func TestTheDevicePluginEndsWithoutADriver(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	m := newMachine(t, h100)
	m.beside(fakegpu.NVML, "nvmlInit_v2=9")
	got := m.serve(nvidias, rendered(t, true, "")...).end()
	g.Expect(got.Code).To(Equal(1))
	g.Expect(strings.ToLower(got.Output)).To(ContainSubstring("driver not loaded"))
}

// read returns the content of a file of the machine.
func (m *machine) read(path string) string {
	m.t.Helper()
	return readFile(m.t, m.dir+"/"+path)
}
