//go:build linux

package nvidia

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/test/fakegpu"
)

// layouts are of H100 GPUs with 80 GB.
const layouts = `version: v1
mig-configs:
  all-disabled:
  - {devices: all, mig-enabled: false}
  all-enabled:
  - {devices: all, mig-enabled: true, mig-devices: {}}
  all-1g.10gb:
  - {devices: all, mig-enabled: true, mig-devices: {1g.10gb: 7}}
  all-1g.10gb.me:
  - {devices: all, mig-enabled: true, mig-devices: {1g.10gb+me: 1}}
  all-1g.20gb:
  - {devices: all, mig-enabled: true, mig-devices: {1g.20gb: 4}}
  all-2g.20gb:
  - {devices: all, mig-enabled: true, mig-devices: {2g.20gb: 3}}
  all-3g.40gb:
  - {devices: all, mig-enabled: true, mig-devices: {3g.40gb: 2}}
  all-4g.40gb:
  - {devices: all, mig-enabled: true, mig-devices: {4g.40gb: 1}}
  all-7g.80gb:
  - {devices: all, mig-enabled: true, mig-devices: {7g.80gb: 1}}
  all-balanced:
  - {device-filter: ["0x233010DE"], devices: all, mig-enabled: true, mig-devices: {1g.10gb: 2, 2g.20gb: 1, 3g.40gb: 1}}
  first-only:
  - {devices: [0], mig-enabled: true, mig-devices: {1g.10gb: 7}}
  - {devices: [1, 2, 3], mig-enabled: false}
  too-many:
  - {devices: all, mig-enabled: true, mig-devices: {3g.40gb: 3}}
  of-another-gpu:
  - {devices: all, mig-enabled: true, mig-devices: {1g.5gb: 7}}
`

// partition runs nvidia-mig-parted with a layout.
func (m *machine) partition(command, layout string) result {
	m.t.Helper()
	return m.run(nil, "nvidia-mig-parted", "--debug", command, "--config-file="+m.write("layouts.yaml", layouts),
		"--selected-config="+layout)
}

func (m *machine) mustPartition(layout string) {
	m.t.Helper()
	if got := m.partition("apply", layout); got.Code != 0 {
		m.t.Fatalf("apply %s: exit code %d\n%s", layout, got.Code, got.Output)
	}
}

func TestMIGLayouts(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	m := newMachine(t, h100)
	for line := range strings.Lines(layouts) {
		layout, isLayout := strings.CutPrefix(strings.TrimSuffix(line, ":\n"), "  ")
		if !isLayout || strings.HasPrefix(layout, "-") || slices.Contains([]string{"too-many", "of-another-gpu"}, layout) {
			continue
		}
		m.mustPartition(layout)
		g.Expect(m.partition("assert", layout).Code).To(BeZero(), layout)
		g.Expect(m.partition("assert", "too-many").Code).To(Equal(1), layout)
	}
	exported := m.mustRun(nil, "nvidia-mig-parted", "export")
	g.Expect(exported).To(And(ContainSubstring("1g.10gb: 7"), ContainSubstring("mig-enabled: false")))
	m.knowsAll()
}

func TestMIGLayoutsThatTheGPUsCannotHave(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	m := newMachine(t, h100)
	g.Expect(m.partition("apply", "too-many")).To(And(HaveField("Code", 1),
		HaveField("Output", ContainSubstring("ERROR_INSUFFICIENT_RESOURCES"))))
	// A profile that the GPUs do not have is passed over without an error; only an assertion notices it.
	g.Expect(m.partition("apply", "of-another-gpu").Code).To(BeZero())
	g.Expect(m.partition("assert", "of-another-gpu").Code).To(Equal(1))
	g.Expect(m.partition("apply", "missing").Code).To(Equal(1))
	m = newMachine(t, t4)
	g.Expect(m.partition("apply", "all-disabled").Code).To(BeZero(), "a GPU without MIG is skipped by devices: all")
	g.Expect(m.partition("apply", "first-only").Code).To(Equal(1))
}

// The device plugin with each strategy, on all GPUs partitioned in one way, and on one GPU alone.
func TestTheDevicePluginWithMIG(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		layout, strategy string
		want             map[string]int
		failure          string
	}{
		"single": {layout: "all-1g.10gb", strategy: "single", want: map[string]int{"gpu": 28}},
		"mixed": {
			layout: "all-balanced", strategy: "mixed",
			want: map[string]int{"mig-1g.10gb": 8, "mig-2g.20gb": 4, "mig-3g.40gb": 4},
		},
		"mixed, one GPU": {layout: "first-only", strategy: "mixed", want: map[string]int{"gpu": 3, "mig-1g.10gb": 7}},
		// The plugin finds the resource by the beginning of the profile.
		"mixed, media": {layout: "all-1g.10gb.me", strategy: "mixed", want: map[string]int{"mig-1g.10gb": 4}},
		"none":         {layout: "all-1g.10gb", strategy: "none", want: map[string]int{"gpu": 4}},
		"single, balanced": {
			layout: "all-balanced", strategy: "single", failure: "more than one MIG device type present on node",
		},
		"single, one GPU": {
			layout: "first-only", strategy: "single",
			failure: "all devices on the node must be configured with the same migEnabled value",
		},
		"single, empty": {layout: "all-enabled", strategy: "single", failure: "has no MIG devices configured"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			m := newMachine(t, h100)
			m.mustPartition(test.layout)
			s := m.serve(nvidias, rendered(t, true, test.strategy)...)
			if test.failure != "" {
				got := s.end()
				g.Expect(got.Code).To(Equal(1))
				g.Expect(got.Output).To(ContainSubstring(test.failure))
				return
			}
			counts := map[string]int{}
			for resource, of := range s.advertised(len(test.want)) {
				counts[resource] = len(of.Devices)
			}
			g.Expect(counts).To(Equal(test.want))
			m.knowsAll()
		})
	}
}

// A container gets the device nodes of the GPU and of both instances; a fault of the GPU marks one of its MIG devices.
func TestTheDevicePluginAllocatesMIGDevices(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	m := newMachine(t, h100)
	m.mustPartition("first-only")
	s := m.serve(nvidias, rendered(t, false, "mixed")...)
	devices := s.advertised(2)["mig-1g.10gb"].Devices
	id := slices.Sorted(maps.Keys(devices))[0]
	g.Expect(id).To(HavePrefix("MIG-"))
	got := s.allocate("mig-1g.10gb", id).Allocated
	g.Expect(got.Envs).To(HaveKeyWithValue("NVIDIA_VISIBLE_DEVICES", id))
	var capabilities int
	for _, device := range got.Devices {
		if strings.HasPrefix(device.Host, "/dev/nvidia-caps/nvidia-cap") {
			capabilities++
		}
	}
	g.Expect(capabilities).To(Equal(2))
	s.listens(2)
	s.beside(fakegpu.Events, "0 79\n")
	after := s.next(func(e event) bool { return states(e)["Unhealthy"] > 0 })
	g.Expect(states(after)).To(Equal(map[string]int{"Healthy": 6, "Unhealthy": 1}), fmt.Sprint(after.Devices))
	m.knowsAll()
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return string(text)
}
