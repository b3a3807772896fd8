//go:build linux

package nvidia

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// situation is what the stand-ins of test/node and NVIDIA's own programs must do alike.
type situation struct {
	// layout is that of nvidia-mig-parted, and profiles that of the stand-in, for each GPU.
	layout           string
	profiles         map[string]int
	strategy, config string
}

// behaviour is what a program does in a situation, in a form that does not depend on the UUIDs of devices.
type behaviour struct {
	// Ended: the device plugin has ended with this code.
	Ended int
	// Devices are how many a resource has, by what the plugin gives to a container that gets the first one.
	Devices map[string]int
	// Given are the names of the devices in the specification of CDI, and Refused why two shares are refused, by resource.
	Given, Refused map[string]string
	// Labels of GPU Feature Discovery.
	Labels map[string]string
}

var situations = map[string]situation{
	"whole GPUs":          {strategy: "single"},
	"time-slicing":        {config: sharing("nvidia.com/gpu", 4, "")},
	"under a new name":    {config: sharing("nvidia.com/gpu", 4, "    renameByDefault: true\n")},
	"one share each":      {config: sharing("nvidia.com/gpu", 4, "    failRequestsGreaterThanOne: true\n")},
	"without a prefix":    {config: sharing("gpu", 4, "")},
	"MIG single":          {layout: "all-1g.10gb", profiles: map[string]int{"1g.10gb": 7}, strategy: "single"},
	"MIG mixed":           {layout: "all-balanced", profiles: balanced, strategy: "mixed"},
	"MIG none":            {layout: "all-balanced", profiles: balanced, strategy: "none"},
	"MIG single, invalid": {layout: "all-balanced", profiles: balanced, strategy: "single"},
	"MIG mixed, shared": {
		layout: "all-1g.10gb", profiles: map[string]int{"1g.10gb": 7}, strategy: "mixed",
		config: sharing("nvidia.com/mig-1g.10gb", 2, ""),
	},
}

var balanced = map[string]int{"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}

func TestTheStandInsBehaveAsNVIDIAsPrograms(t *testing.T) {
	t.Parallel()
	for name, s := range situations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			genuine := s.play(t, func(m *machine) {
				if s.layout != "" {
					m.mustPartition(s.layout)
				}
			}, nvidias, func(m *machine, variables []string) { m.features(s.config, variables...) })
			played := s.play(t, func(m *machine) {
				if s.layout != "" {
					layout, err := json.Marshal(s.profiles)
					NewWithT(t).Expect(err).NotTo(HaveOccurred())
					m.write("proc/driver/nvidia/mig-layout", string(layout))
				}
			}, program{name: "nvidia-device-plugin", standIn: standIn}, (*machine).playFeatures)
			// The stand-in has fewer labels, and those of the driver from another place.
			maps.DeleteFunc(played.Labels, func(label, _ string) bool {
				return strings.HasPrefix(label, "cuda.") || label == "gfd.timestamp"
			})
			NewWithT(t).Expect(played.Labels).NotTo(BeEmpty())
			maps.DeleteFunc(genuine.Labels, func(label, _ string) bool { _, has := played.Labels[label]; return !has })
			NewWithT(t).Expect(played).To(Equal(genuine))
		})
	}
}

// play plays a situation.
func (s situation) play(
	t *testing.T, partition func(*machine), plugin program, features func(*machine, []string),
) behaviour {
	g := NewWithT(t)
	m := newMachine(t, h100)
	partition(m)
	variables := rendered(t, true, s.strategy)
	if s.config != "" {
		variables = append(variables, "CONFIG_FILE="+m.write("config.yaml", s.config))
	}
	features(m, variables)
	found := behaviour{
		Devices: map[string]int{}, Given: map[string]string{}, Refused: map[string]string{}, Labels: m.labels(),
	}
	served := m.serve(plugin, variables...)
	if strings.HasSuffix(found.Labels["gpu.product"], "-INVALID") {
		found.Ended = served.end().Code
		return found
	}
	resources := max(1, len(s.profiles))
	if s.strategy != "mixed" {
		resources = 1
	}
	for resource, event := range served.advertised(resources) {
		ids := slices.Sorted(maps.Keys(event.Devices))
		found.Devices[resource+" "+shape(ids[0])] = len(ids)
		got := served.allocate(resource, ids[0])
		g.Expect(got.Error).To(BeEmpty())
		for _, device := range got.Allocated.CDI {
			found.Given[resource] += shape(device.Name) + " "
		}
		if _, refused, is := strings.Cut(served.allocate(resource, ids[0], ids[1]).Error, "invalid request: "); is {
			found.Refused[resource] = refused
		}
	}
	return found
}

// playFeatures runs the stand-in of GPU Feature Discovery until it has written its labels.
func (m *machine) playFeatures(variables []string) {
	m.t.Helper()
	ctx, cancel := context.WithCancel(m.t.Context())
	defer cancel()
	p := m.command(ctx, variables, program{name: "gpu-feature-discovery", standIn: standIn})
	g := NewWithT(m.t)
	g.Expect(p.Start()).To(Succeed())
	g.Eventually(p.log.String).WithTimeout(patience).Should(ContainSubstring("the labels are written"))
	cancel()
	var killed *exec.ExitError
	g.Expect(p.Wait()).To(BeAssignableToTypeOf(killed))
}

var anUUID = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// shape replaces UUIDs in the ID of a device.
func shape(id string) string { return fmt.Sprint(anUUID.ReplaceAllString(id, "UUID")) }
