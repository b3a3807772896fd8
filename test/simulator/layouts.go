package simulator

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// partition is how one GPU is partitioned: whole unless MIG is enabled.
type partition struct {
	enabled bool
	// devices are the numbers of MIG devices by profile.
	devices map[string]int
}

func (p partition) equal(other partition) bool {
	return p.enabled == other.enabled && maps.Equal(p.devices, other.devices)
}

// layoutFile is the configuration of the MIG manager, version v1.
type layoutFile struct {
	Version string                   `json:"version"`
	Layouts map[string][]layoutEntry `json:"mig-configs"`
}

// layoutEntry partitions some GPUs of a node.
type layoutEntry struct {
	Filter any `json:"device-filter,omitempty"`
	// Devices is "all" or a list of indices.
	Devices any            `json:"devices"`
	Enabled bool           `json:"mig-enabled"`
	MIG     map[string]int `json:"mig-devices"`
}

// generatedLayouts returns the layouts that the MIG manager generates for a model. A label cannot have the plus sign
// of a profile.
func generatedLayouts(model gpuModel) map[string][]layoutEntry {
	all := func(devices map[string]int) []layoutEntry {
		return []layoutEntry{{Devices: "all", Enabled: true, MIG: devices}}
	}
	layouts := map[string][]layoutEntry{
		"all-disabled": {{Devices: "all"}}, "all-enabled": all(nil),
		"all-balanced": all(map[string]int{"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}),
	}
	for name := range model.profiles {
		layouts["all-"+strings.ReplaceAll(name, "+", ".")] = all(map[string]int{name: model.fit(name)})
	}
	return layouts
}

// readLayouts reads the layouts of a user.
func readLayouts(text string) (map[string][]layoutEntry, error) {
	var file layoutFile
	if err := yaml.UnmarshalStrict([]byte(text), &file); err != nil {
		return nil, fmt.Errorf("read MIG layouts: %w", err)
	}
	if file.Version != configVersion {
		return nil, fmt.Errorf("read MIG layouts: unknown version %q", file.Version)
	}
	return file.Layouts, nil
}

// partitionsOf returns what a layout makes of the GPUs. GPUs that no entry is about stay as they are.
func partitionsOf(layout []layoutEntry, now []partition) []partition {
	partitions := slices.Clone(now)
	for _, entry := range layout {
		for i := range partitions {
			if entry.isAbout(i) {
				partitions[i] = partition{enabled: entry.Enabled, devices: entry.MIG}
			}
		}
	}
	return partitions
}

// isAbout reports whether the entry selects the GPU with this index. Filters are not simulated: all GPUs of a node are
// of one model.
func (e layoutEntry) isAbout(gpu int) bool {
	indices, isList := e.Devices.([]any)
	return !isList || slices.ContainsFunc(indices, func(index any) bool { return index == float64(gpu) })
}
