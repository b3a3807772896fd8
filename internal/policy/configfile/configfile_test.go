package configfile_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/clusterpolicy/gpu-operator/internal/policy/configfile"
)

// What mig-parted rejects, by its own reader, is named with its line.
func TestMIGLayouts(t *testing.T) {
	const head = "version: v1\nmig-configs:\n  a:\n"
	const unknown = " is unknown: use device-filter, devices, mig-enabled, mig-devices"
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"all disabled":         {text: head + "  - {devices: all, mig-enabled: false}\n"},
		"disabled, no profile": {text: head + "  - {devices: all, mig-enabled: false, mig-devices: {}}\n"},
		"profiles": {text: head + "  - devices: [0, 1]\n    device-filter: [\"0x233010DE\"]\n    mig-enabled: true\n" +
			"    mig-devices: {1g.10gb: 7, 1g.10gb+me: 1}\n"},
		"a YAML 1.1 yes": {text: head + "  - {devices: all, mig-enabled: Yes, mig-devices: {1g.10gb: 7}}\n"},
		"no devices":     {text: head + "  - {devices: all, mig-enabled: true, mig-devices: {}}\n"},
		"no version": {text: "mig-configs: {a: [{devices: all, mig-enabled: false}]}\n",
			want: []string{"line 1: key version is missing: add version: v1"}},
		"another version": {text: "version: v2\nmig-configs: {a: [{devices: all, mig-enabled: false}]}\n",
			want: []string{"line 1: version v2 is unknown: use v1"}},
		"an unknown block": {text: head + "  - {devices: all, mig-enabled: false}\nlayouts: {}\n",
			want: []string{"line 5: key layouts is unknown: use version, mig-configs"}},
		"misspelt keys": {text: head + "  - devices: all\n    mig-enable: true\n    mig-device: {1g.10gb: 7}\n",
			want: []string{
				"line 5: key mig-enable" + unknown, "line 6: key mig-device" + unknown,
				"line 4: key mig-enabled is missing: add it with true or false"}},
		"an empty layout": {text: head + "    []\n",
			want: []string{"line 3: layout a must be a list with an entry for each kind of GPU"}},
		"no list": {text: head + "    devices: all\n",
			want: []string{"line 3: layout a must be a list with an entry for each kind of GPU"}},
		"no mapping": {text: head + "  - all\n", want: []string{"line 4: must have the keys devices and mig-enabled"}},
		"no keys": {text: head + "  - {device-filter: x}\n", want: []string{
			"line 4: key devices is missing: add devices: all",
			"line 4: key mig-enabled is missing: add it with true or false"}},
		"wrong values": {text: head + "  - devices: every\n    mig-enabled: maybe\n    mig-devices: {1g.10gb: many}\n",
			want: []string{
				"line 4: devices must be all, or a list of numbers of GPUs such as [0, 1]",
				"line 5: mig-enabled must be true or false",
				"line 6: mig-devices must have a number for each profile, such as 1g.10gb: 7"}},
		"names of devices": {text: head + "  - {devices: [gpu0], mig-enabled: false}\n",
			want: []string{"line 4: devices must be all, or a list of numbers of GPUs such as [0, 1]"}},
		"MIG without profiles": {text: head + "  - {devices: all, mig-enabled: true}\n",
			want: []string{"line 4: key mig-devices is missing: add it, with {} for none"}},
		"profiles without MIG": {text: head + "  - {devices: all, mig-enabled: false, mig-devices: {1g.10gb: 7}}\n",
			want: []string{"line 4: mig-devices needs mig-enabled: true"}},
		"an alias":  {text: "x: &x []\n" + head + "    *x\n"},
		"no YAML":   {text: "a: b: c"},
		"no blocks": {text: "version: v1\n"},
		"many": {text: head + strings.Repeat("  - {a: 1, devices: all, mig-enabled: false}\n", 9), want: []string{
			"line 4: key a" + unknown, "line 5: key a" + unknown, "line 6: key a" + unknown, "line 7: key a" + unknown}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := configfile.MIGLayouts(test.text); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestGPUClients(t *testing.T) {
	const none = "systemd-services must be a list of names of services: no service is stopped"
	for text, want := range map[string][]string{
		"version: v1\nsystemd-services: [a.service]\n": nil,
		"version: v1\nsystemd-services: []\n":          nil,
		"version: v1\nsystemd: [a.service]\n": {
			"line 2: key systemd is unknown: use version, systemd-services", "line 1: " + none,
		},
		"version: v1\nsystemd-services: a.service\n": {"line 1: " + none},
		"- a.service\n": {"is no mapping: add version: v1 and systemd-services with the names of services"},
		"":              {"is no mapping: add version: v1 and systemd-services with the names of services"},
		"version: v1\nx: &x [a.service]\nsystemd-services: *x\n": nil,
		"version: v1\nsystemd-services: [a\n":                    {"cannot be read: it is no YAML"},
		"version: v1\nsystemd-services: [a]\n" + strings.Repeat("k", 70) + ": 1\n": {
			"line 3: key " + strings.Repeat("k", 61) + "... is unknown: use version, systemd-services",
		},
	} {
		if got := configfile.GPUClients(text); !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestModuleParameters(t *testing.T) {
	const form = "has the form of modprobe.d, which the driver container adds itself: " +
		"write the parameters alone, such as NAME=VALUE"
	for text, want := range map[string][]string{
		"": nil,
		"NVreg_EnableGpuFirmware=0\n\nNVreg_A=1 NVreg_B=2\n": nil,
		"a_switch\n":                       nil,
		"NVreg_RegistryDwords=\"a=1;b=2\"": nil,
		"options nvidia NVreg_A=1\n":       {"line 1: " + form},
		"NVreg_A=1\n# why\n": {
			"line 2: is passed to the module, as the file has no comments: remove it",
		},
		"NVreg_A 1\n": {"line 1: NVreg_A 1 is no parameter: write NAME=VALUE"},
	} {
		if got := configfile.ModuleParameters(text); !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
