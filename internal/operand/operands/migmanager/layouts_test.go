package migmanager_test

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/clusterpolicy/gpu-operator/assets"
)

// The format of mig-parted, version v1.
type (
	layouts struct {
		Version string             `json:"version"`
		Configs map[string][]entry `json:"mig-configs"`
	}
	entry struct {
		Filter  []string       `json:"device-filter,omitempty"`
		Devices string         `json:"devices"`
		Enabled *bool          `json:"mig-enabled"`
		MIG     map[string]int `json:"mig-devices,omitempty"`
	}
)

// family is a size of GPU: the number of compute slices, and its memory in GB. There are as many memory slices as
// compute slices, or eight for seven.
type family struct {
	slices, memory int
	names          string
}

// families are the sizes of GPUs, with the names of the layouts that users know.
var families = []family{
	{4, 24, "1g.6gb 1g.6gb.me 2g.12gb 2g.12gb.me 4g.24gb"},
	{7, 40, "1g.5gb 1g.5gb.me 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb"},
	{7, 80, "1g.10gb 1g.10gb.me 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb"},
	{7, 94, "1g.12gb 1g.12gb.me 1g.24gb 1g.24gb.me 2g.24gb 3g.47gb 4g.47gb 7g.94gb"},
	{7, 96, "1g.12gb 1g.12gb.me 1g.24gb 1g.24gb.me 2g.24gb 3g.48gb 4g.48gb 7g.96gb"},
	{
		4,
		96,
		"1g.24gb 1g.24gb.gfx 1g.24gb.me 1g.24gb.me.all 1g.24gb-me 2g.48gb 2g.48gb.gfx 2g.48gb.me.all 2g.48gb-me " +
			"4g.96gb 4g.96gb.gfx",
	},
	{7, 141, "1g.18gb 1g.18gb.me 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb"},
	{7, 144, "1g.18gb 1g.18gb.me 1g.36gb 2g.36gb 3g.72gb 4g.72gb 7g.144gb"},
	{7, 180, "1g.23gb 1g.23gb.me 1g.45gb 2g.45gb 3g.90gb 4g.90gb 7g.180gb"},
	{7, 186, "1g.23gb 1g.23gb.me 1g.47gb 2g.47gb 3g.93gb 4g.93gb 7g.186gb"},
	{7, 189, "1g.23gb 1g.23gb.me 1g.47gb 2g.47gb 3g.95gb 4g.95gb 7g.189gb"},
	{7, 269, "1g.34gb 1g.34gb.me 1g.67gb 2g.67gb 3g.135gb 4g.135gb 7g.269gb"},
	{7, 278, "1g.35gb 1g.35gb.me 1g.70gb 2g.70gb 3g.139gb 4g.139gb 7g.278gb"},
}

var profilePattern = regexp.MustCompile(`^([0-9])g\.([0-9]+)gb(.*)$`)

// needs returns the compute and memory slices of one device of the profile.
func (f family) needs(t *testing.T, profile string) (compute, memory int) {
	t.Helper()
	parts := profilePattern.FindStringSubmatch(profile)
	if parts == nil {
		t.Fatalf("%q is not a profile", profile)
	}
	compute, err := strconv.Atoi(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	gigabytes, err := strconv.Atoi(parts[2])
	if err != nil {
		t.Fatal(err)
	}
	return compute, int(math.Round(float64(gigabytes) * float64(f.memorySlices()) / float64(f.memory)))
}

func (f family) memorySlices() int {
	if f.slices == 7 {
		return 8
	}
	return f.slices
}

// fit returns how many devices of the profile fit on a GPU. Only one device can have its media engines.
func (f family) fit(t *testing.T, profile string) int {
	t.Helper()
	if suffix := profilePattern.FindStringSubmatch(profile)[3]; strings.HasPrefix(suffix, "+me") {
		return 1
	}
	compute, memory := f.needs(t, profile)
	return min(f.slices/compute, f.memorySlices()/memory)
}

func shipped(t *testing.T) layouts {
	t.Helper()
	text, err := assets.FS.ReadFile("mig-manager/0400_configmap.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var configMap struct {
		Data map[string]string `json:"data"`
	}
	manifest := strings.ReplaceAll(string(text), "{{ quote .Namespace }}", "n")
	if err := yaml.Unmarshal([]byte(manifest), &configMap); err != nil {
		t.Fatal(err)
	}
	var all layouts
	if err := yaml.UnmarshalStrict([]byte(configMap.Data["config.yaml"]), &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// counts are the numbers of devices, by layout and profile.
type counts map[string]map[int]bool

func (c counts) add(name, profile string, count int) {
	key := name + " of " + profile
	if c[key] == nil {
		c[key] = map[int]bool{}
	}
	c[key][count] = true
}

// profile returns the profile in the name of a layout. Label values cannot contain a plus sign, so names have a dot
// instead.
func profile(name string) string {
	parts := profilePattern.FindStringSubmatch(name)
	return fmt.Sprintf("%sg.%sgb%s", parts[1], parts[2], strings.Replace(parts[3], ".", "+", 1))
}

// The layouts are exactly those that users know, and each has as many devices as fit on the GPU.
func TestTheLayoutsFillTheGPUs(t *testing.T) {
	want, got := counts{}, counts{}
	for _, f := range families {
		for name := range strings.FieldsSeq(f.names) {
			want.add("all-"+name, profile(name), f.fit(t, profile(name)))
		}
	}
	all := shipped(t)
	if all.Version != "v1" {
		t.Errorf("version %q", all.Version)
	}
	for _, general := range []string{"all-disabled", "all-enabled", "all-balanced"} {
		if len(all.Configs[general]) == 0 {
			t.Errorf("%s is missing", general)
		}
		delete(all.Configs, general)
	}
	for name, entries := range all.Configs {
		for _, e := range entries {
			for profile, count := range e.MIG {
				got.add(name, profile, count)
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-fits +shipped:\n%s", diff)
	}
}

var pciPattern = regexp.MustCompile(`^0x[0-9A-F]{4}10DE$`)

// Every entry has what mig-parted needs, and no GPU matches two entries of a layout.
func TestTheLayoutsAreWhole(t *testing.T) {
	for name, entries := range shipped(t).Configs {
		seen := map[string]bool{}
		for _, e := range entries {
			if e.Devices != "all" || e.Enabled == nil || *e.Enabled == (name == "all-disabled") {
				t.Errorf("%s: devices are %q, mig-enabled is %v", name, e.Devices, e.Enabled)
			}
			if (len(e.Filter) == 0) != (len(entries) == 1) {
				t.Errorf("%s: entries of several need a filter, a single one does not", name)
			}
			for _, id := range e.Filter {
				if seen[id] || !pciPattern.MatchString(id) {
					t.Errorf("%s: %s is not a PCI device of NVIDIA, or is a duplicate", name, id)
				}
				seen[id] = true
			}
		}
	}
}

// The balanced layouts use all compute slices of a GPU, and fit in its memory.
func TestTheBalancedLayoutsFit(t *testing.T) {
	for _, e := range shipped(t).Configs["all-balanced"] {
		fits := false
		for _, f := range families {
			names := strings.Fields(f.names)
			taken, memory, supported := 0, 0, true
			for profile, count := range e.MIG {
				compute, needed := f.needs(t, profile)
				taken, memory = taken+count*compute, memory+count*needed
				supported = supported && slices.Contains(names, profile)
			}
			fits = fits || supported && taken == f.slices && memory <= f.memorySlices()
		}
		if !fits {
			t.Errorf("%v fits no GPU", e.MIG)
		}
	}
}
