//go:build linux

package nvidia

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
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
	// list is the way in which containers get their devices; empty is that of the default, by CDI.
	list string
}

// behaviour is what a program does in a situation, in a form that does not depend on the UUIDs of devices.
type behaviour struct {
	// Ended: the device plugin has ended with this code, and the operator shows Why.
	Ended int
	Why   string
	// Devices are how many a resource has, by what the plugin gives to a container that gets the first one.
	Devices map[string]int
	// Given is what a container gets of one device, and Refused why two shares are refused, by resource.
	Given   map[string][]string
	Refused map[string]string
	// Labels of GPU Feature Discovery.
	Labels map[string]string
}

var situations = map[string]situation{
	"whole GPUs":          {strategy: "single"},
	"time-slicing":        {config: sharing("nvidia.com/gpu", 4, "")},
	"under a new name":    {config: sharing("nvidia.com/gpu", 4, "    renameByDefault: true\n")},
	"one share each":      {config: sharing("nvidia.com/gpu", 4, "    failRequestsGreaterThanOne: true\n")},
	"without a prefix":    {config: sharing("gpu", 4, "")},
	"by a variable":       {list: "envvar"},
	"by mounts":           {list: "volume-mounts"},
	"by both":             {list: "envvar,cdi-cri"},
	"MPS":                 {config: sharingByMPS(4)},
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

// notPlayed matches the labels that the stand-in does not have, and those that it has from another place.
var notPlayed = regexp.MustCompile(`^(cuda\..*|vgpu\.present|gpu\.(compute\.(major|minor)|family|machine|mode)|` +
	`(gpu|mig-\d+g\.\d+gb)\.(engines\.[a-z]+|memory|multiprocessors|slices\.[cg]i))$`)

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
			for _, labels := range []map[string]string{genuine.Labels, played.Labels} {
				maps.DeleteFunc(labels, func(label, _ string) bool { return notPlayed.MatchString(label) })
				// NVIDIA's is run without it.
				delete(labels, "gfd.timestamp")
			}
			// NVIDIA's programs put more before a cause.
			NewWithT(t).Expect(genuine.Why).To(HaveSuffix(played.Why))
			if (played.Why == "") != (played.Ended == 0) {
				t.Errorf("it ended with %d for %q", played.Ended, played.Why)
			}
			genuine.Why = played.Why
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
	// The daemon of the Multi-Process Service serves, if one is asked.
	g.Expect(os.WriteFile(filepath.Join(m.stack.Bin, "nvidia-cuda-mps-control"), []byte("#!/bin/sh\n"), 0o755)).
		To(Succeed())
	partition(m)
	variables := rendered(t, s.list == "", s.strategy)
	if s.list != "" {
		variables = append(variables, "DEVICE_LIST_STRATEGY="+s.list)
	}
	if s.config != "" {
		variables = append(variables, "CONFIG_FILE="+m.write("config.yaml", s.config))
	}
	features(m, variables)
	found := behaviour{
		Devices: map[string]int{}, Given: map[string][]string{}, Refused: map[string]string{}, Labels: m.labels(),
	}
	served := m.serve(plugin, variables...)
	if strings.HasSuffix(found.Labels["gpu.product"], "-INVALID") {
		end := served.end()
		found.Ended, found.Why = end.Code, end.why()
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
		found.Given[resource] = got.Allocated.words()
		if _, refused, is := strings.Cut(served.allocate(resource, ids[0], ids[1]).Error, "invalid request: "); is {
			found.Refused[resource] = refused
		}
	}
	return found
}

// words are what a container gets, a word for each thing.
func (a *allocated) words() []string {
	var words []string
	for _, device := range a.CDI {
		words = append(words, "device "+device.Name)
	}
	for key, value := range a.Annotations {
		words = append(words, "annotation "+key+"="+value)
	}
	for name, value := range a.Envs {
		words = append(words, "variable "+name+"="+value)
	}
	for _, mount := range a.Mounts {
		words = append(words, "mount "+mount.Host+" "+mount.Container)
	}
	for _, node := range a.Devices {
		words = append(words, "node "+node.Host+" "+node.Container+" "+node.Permissions)
	}
	for i := range words {
		words[i] = shape(words[i])
	}
	slices.Sort(words)
	return words
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
