package pluginfile_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clusterpolicy/gpu-operator/internal/policy/pluginfile"
)

func TestCheck(t *testing.T) {
	fatal := func(line int, message string) pluginfile.Problem {
		return pluginfile.Problem{Line: line, Fatal: true, Message: message}
	}
	ignored := func(line int, message string) pluginfile.Problem {
		return pluginfile.Problem{Line: line, Message: message}
	}
	type problems []pluginfile.Problem
	const prefix = "version: v1\nsharing:\n  timeSlicing:\n"
	const entry = "    resources:\n    - {name: nvidia.com/gpu, replicas: 4}\n"
	tests := map[string]struct {
		text string
		want problems
	}{
		"time slices": {text: prefix + entry},
		"all options": {text: prefix + "    renameByDefault: true\n    failRequestsGreaterThanOne: false\n" + entry},
		"flags alone": {text: "version: v1\nflags: {migStrategy: mixed, plugin: {deviceIDStrategy: uuid, " +
			"sharedDevicesAllocationPolicy: packed}, gfd: {noTimestamp: true}, failOnInitError: true}\n"},
		"all other blocks": {text: "version: v1\nimex: {channelIDs: [0], required: true}\nhealth: {disabled: false, " +
			"eventTypes: [xid], ignoredXIDs: [13], criticalXIDs: all}\nresources: {gpus: []}\n"},
		"lists of resources in any case": {text: "version: v1\nresources: {GPUs: [], Migs: []}\n"},
		"sharing below flags": {
			text: "version: v1\nflags:\n  renameByDefault: true\n  timeSlicing: {}\n", want: problems{
				ignored(3, "flags.renameByDefault is ignored: move it below sharing.timeSlicing or sharing.mps"),
				ignored(4, "flags.timeSlicing is ignored: move it below sharing"),
			},
		},
		"unknown keys elsewhere": {
			text: "version: v1\nflags:\n  plugin: {passDeviceSpec: true}\n  gfd: {sleep: 60s}\nimex: {channels: [0]}\n" +
				"health: {enabled: true}\nresources: {gpu: []}\n", want: problems{
				ignored(3, "flags.plugin.passDeviceSpec is ignored: use cdiAnnotationPrefix, containerDriverRoot, "+
					"deviceIDStrategy, deviceListStrategy, nvidiaCTKPath, passDeviceSpecs, sharedDevicesAllocationPolicy"),
				ignored(4, "flags.gfd.sleep is ignored: use machineTypeFile, noTimestamp, oneshot, outputFile, sleepInterval"),
				ignored(5, "imex.channels is ignored: use channelIDs, required"),
				ignored(6, "health.enabled is ignored: use criticalXIDs, disabled, eventTypes, ignoredXIDs"),
				ignored(7, "resources.gpu is ignored: use gpus, mig, migs"),
			},
		},
		"keys that variables override": {
			text: "version: v1\nflags:\n  failOnInitError: false\n  mpsRoot: /mps\n" +
				"  plugin:\n    deviceListStrategy: [volume-mounts]\n    deviceIDStrategy: index\n" +
				"  gfd: {sleepInterval: 5s}\n", want: problems{
				ignored(3, "flags.failOnInitError has no effect, as a variable of the container has precedence: "+
					"set FAIL_ON_INIT_ERROR in spec.devicePlugin.env"),
				ignored(4, "flags.mpsRoot has no effect, as a variable of the container has precedence: "+
					"set spec.devicePlugin.mps.root"),
				ignored(6, "flags.plugin.deviceListStrategy has no effect, as a variable of the container has precedence: "+
					"set DEVICE_LIST_STRATEGY in spec.devicePlugin.env"),
				ignored(7, "flags.plugin.deviceIDStrategy has no effect, as a variable of the container has precedence: "+
					"set DEVICE_ID_STRATEGY in spec.devicePlugin.env"),
				ignored(8, "flags.gfd.sleepInterval has no effect, as a variable of the container has precedence: "+
					"set GFD_SLEEP_INTERVAL in spec.gfd.env"),
			},
		},
		"a duration in nanoseconds": {
			text: "version: v1\nmigStrategy: mixed\nflags: {gfd: {sleepInterval: 5000000000}}\n", want: problems{
				ignored(2, "migStrategy is ignored: set spec.mig.strategy"),
				ignored(3, "flags.gfd.sleepInterval has no effect, as a variable of the container has precedence: "+
					"set GFD_SLEEP_INTERVAL in spec.gfd.env"),
			},
		},
		"keys that nothing reads": {
			text: "version: v1\nflags:\n  nvidiaDriverRoot: /a\n  gdsEnabled: false\n  gdrcopyEnabled: true\n" +
				"  plugin: {cdiAnnotationPrefix: a/, containerDriverRoot: /driver-root}\n" +
				"  gfd: {oneshot: true, outputFile: /a}\n", want: problems{
				ignored(3, "flags.nvidiaDriverRoot has no effect, as a variable of the container has precedence: "+
					"set spec.hostPaths.driverInstallDir"),
				ignored(4, "flags.gdsEnabled has no effect, as a variable of the container has precedence: "+
					"set GDS_ENABLED in spec.devicePlugin.env"),
				ignored(6, "flags.plugin.cdiAnnotationPrefix has no effect, as a variable of the container has precedence: "+
					"set CDI_ANNOTATION_PREFIX in spec.devicePlugin.env"),
				ignored(7, "flags.gfd.oneshot cannot be true: its pods end after each run, and restart: remove it"),
				ignored(7, "flags.gfd.outputFile cannot be /a: nodes get their labels from "+
					"/etc/kubernetes/node-feature-discovery/features.d/gfd: remove it"),
			},
		},
		"the NodeFeature API": {
			text: "version: v1\nflags: {useNodeFeatureAPI: true}\n", want: problems{{
				Line: 2, OwnDiscovery: true, Message: "flags.useNodeFeatureAPI has no effect, as a variable of the container " +
					"has precedence: set USE_NODE_FEATURE_API in spec.gfd.env",
			}},
		},
		"defaults": {
			text: "version: v1\nflags: {useNodeFeatureAPI: no, failOnInitError: yes, " +
				"gfd: {oneshot: false, sleepInterval: 60s}}\n",
		},
		"resources that are not advertised": {
			text: prefix + "    resources:\n    - {name: gpu, replicas: 4}\n    - {name: nvidia.com/gpus, replicas: 4}\n",
			want: problems{
				ignored(6, "sharing.timeSlicing.resources[1].name is nvidia.com/gpus, which shares nothing: use nvidia.com/gpu, "+
					"or nvidia.com/mig- and a profile"),
			},
		},
		"MIG devices by MPS": {
			text: "version: v1\nsharing:\n  mps:\n    resources: [{name: nvidia.com/mig-1g.5gb, replicas: 2}]\n", want: problems{
				ignored(4, "sharing.mps.resources[0].name is nvidia.com/mig-1g.5gb: MIG devices cannot be shared by MPS, "+
					"use timeSlicing"),
			},
		},
		"values that do not exist": {
			text: "version: v1\nflags:\n  deviceDiscoveryStrategy: pci\n  gdsEnabled: 3\n" +
				"  plugin: {deviceListStrategy: [envvar, mounts]}\nimex: {channelIDs: [1]}\n", want: problems{
				fatal(3, "flags.deviceDiscoveryStrategy pci is unknown: use auto, nvml, tegra, vfio"),
				fatal(4, "flags.gdsEnabled must be true or false"),
				ignored(5, "flags.plugin.deviceListStrategy has no effect, as a variable of the container has precedence: "+
					"set DEVICE_LIST_STRATEGY in spec.devicePlugin.env"),
				fatal(6, "imex.channelIDs must be [] or [0]"),
			},
		},
		"values of another type below plugin": {
			text: "version: v1\nflags:\n  plugin:\n    deviceListStrategy: {a: b}\n    deviceIDStrategy: 3\n", want: problems{
				fatal(4, "flags.plugin.deviceListStrategy must be a text, or a list of texts: quote them"),
				fatal(5, "flags.plugin.deviceIDStrategy must be a text: quote it"),
			},
		},
		"no value of time slices": {
			text: "version: v1\nsharing:\n  mps:\n  timeSlicing:\n", want: problems{
				fatal(4, "sharing.timeSlicing has no value: add resources, or remove it"),
			},
		},
		"entries without a value": {
			text: prefix + "    resources:\n    - {name: gpu, replicas: 2, devices: }\n" +
				"    - {name: gpu, replicas: 2, rename: }\n",
			want: problems{
				fatal(5, "sharing.timeSlicing.resources[0].devices must be all: remove it"),
				fatal(6, "sharing.timeSlicing.resources[1].rename is , which is no name of a resource: remove it, and set "+
					"renameByDefault"),
			},
		},
		"a new name that no resource can have": {
			text: prefix + "    resources:\n    - {name: gpu, replicas: 2, rename: Mine_}\n", want: problems{
				fatal(5, "sharing.timeSlicing.resources[0].rename is Mine_, which is no name of a resource: remove it, and set "+
					"renameByDefault"),
			},
		},
		"numbers in another form": {
			text: prefix + "    resources:\n    - {name: gpu, replicas: 0x10}\n    - {name: gpu, replicas: 2.0}\n" +
				"    - {name: gpu, replicas: 2.5}\n", want: problems{
				fatal(7, "sharing.timeSlicing.resources[2].replicas is 2.5: it must be a number from 2"),
			},
		},
		"keys in other letters": {
			text: "Version: v1\nSharing:\n  timeslicing:\n    resources: [{name: gpu, replicas: 1}]\n", want: problems{
				fatal(4, "sharing.timeSlicing.resources[0].replicas is 1: it must be a number from 2"),
			},
		},
		"the last of two keys": {
			text: "version: v2\nversion: v1\nflags: {migStrategy: single}\nflags: {migStrategy: some}\n", want: problems{
				fatal(4, "flags.migStrategy some is unknown: use none, single, mixed"),
			},
		},
		"an infinite interval": {
			text: "version: v1\nflags: {gfd: {sleepInterval: infinite}}\n", want: problems{
				ignored(2, "flags.gfd.sleepInterval has no effect, as a variable of the container has precedence: "+
					"set GFD_SLEEP_INTERVAL in spec.gfd.env"),
			},
		},
		"resources that cannot be read": {
			text: "version: v1\nresources:\n  gpus:\n  - {name: gpu}\n  mig:\n  - {pattern: a, name: Mine_}\n", want: problems{
				fatal(4, "resources.gpus[0] has no pattern or no name of a resource: remove it"),
				fatal(6, "resources.mig[0] has no pattern or no name of a resource: remove it"),
			},
		},
		"renamed resources": {
			text: "version: v1\nresources:\n  gpus:\n  - {pattern: \"*\", name: mine}\n", want: problems{
				ignored(4, "resources.gpus is ignored: the device plugin does not rename resources, remove it"),
			},
		},
		"MPS": {text: "version: v1\nsharing:\n  mps:\n" + entry},
		"several resources": {
			text: prefix + entry + "    - {name: nvidia.com/mig-1g.10gb, replicas: 2, devices: all}\n",
		},
		"sharing of nothing": {text: "version: v1\nsharing: {}\n"},
		"an empty text": {
			want: problems{ignored(0, "is empty and shares nothing: write the version v1, or remove the key")},
		},
		"no YAML": {
			text: "version: v1\n sharing: x\n", want: problems{
				fatal(0, "cannot be read: line 2: mapping values are not allowed in this context"),
			},
		},
		"a list":         {text: "- version\n", want: problems{fatal(1, "the configuration must be a mapping of keys")}},
		"no version":     {text: "sharing:\n  timeSlicing:\n" + entry},
		"a YAML 1.1 yes": {text: prefix + "    renameByDefault: yes\n" + entry},
		"an alias": {
			text: "version: v1\nx: &shared\n  resources: [{name: nvidia.com/gpu, replicas: 4}]\n" +
				"sharing:\n  timeSlicing: *shared\n",
		},
		"another version in a file with an alias": {
			text: "version: v2\nx: &shared\n  resources: [{name: nvidia.com/gpu, replicas: 1}]\n" +
				"sharing:\n  timeSlicing: *shared\n", want: problems{
				fatal(1, "version v2 is unknown: use v1"),
				fatal(3, "sharing.timeSlicing.resources[0].replicas is 1: it must be a number from 2"),
			},
		},
		"merged keys": {
			text: "version: v1\nx: &shared\n  renameByDefault: yes\n  resources: [{name: nvidia.com/gpu, replicas: 1}]\n" +
				"sharing:\n  timeSlicing:\n    <<: [*shared]\n    resources: [{name: nvidia.com/gpu, replicas: 4}]\n  mps:\n" +
				"    <<: *shared\n", want: problems{
				fatal(4, "sharing.mps.resources[0].replicas is 1: it must be a number from 2"),
			},
		},
		"a merged key that is null beside it": {
			text: "version: v1\nx: &shared\n  resources: [{name: nvidia.com/gpu, replicas: 4}]\n" +
				"sharing:\n  mps:\n    resources: null\n    <<: *shared\n", want: problems{
				fatal(6, "sharing.mps.resources is missing: add an entry with name and replicas"),
			},
		},
		"several merged mappings, of which the first counts": {
			text: "version: v1\nx: &one\n  resources: [{name: nvidia.com/gpu, replicas: 4}]\n" +
				"y: &two\n  resources: [{name: nvidia.com/gpu, replicas: 1}]\n" +
				"sharing:\n  mps:\n    <<: [*one, *two]\n",
		},
		"an alias of itself": {text: "version: v1\nsharing: &a\n  timeSlicing: *a\n"},
		"devices that the plugin cannot read": {
			text: prefix + "    resources:\n    - {name: gpu, replicas: 2, devices: first}\n" +
				"    - {name: gpu, replicas: 2, devices: 0}\n    - {name: gpu, replicas: 2, devices: [bad]}\n" +
				"    - {name: gpu, replicas: 2, devices: {a: b}}\n", want: problems{
				fatal(5, "sharing.timeSlicing.resources[0].devices must be all: remove it"),
				fatal(6, "sharing.timeSlicing.resources[1].devices must be all: remove it"),
				fatal(7, "sharing.timeSlicing.resources[2].devices must be all: remove it"),
				fatal(8, "sharing.timeSlicing.resources[3].devices must be all: remove it"),
			},
		},
		"devices that it reads and ignores": {
			text: prefix + "    resources:\n    - {name: gpu, replicas: 2, devices: 3}\n    - {name: gpu, replicas: 2, " +
				"devices: [0, \"1:0\", GPU-b1028956-cfa2-0990-bf4a-5da9abb51763, " +
				"MIG-GPU-b1028956-cfa2-0990-bf4a-5da9abb51763/3/0]}\n", want: problems{
				ignored(5, "sharing.timeSlicing.resources[0].devices is ignored: all devices are shared"),
				ignored(6, "sharing.timeSlicing.resources[1].devices is ignored: all devices are shared"),
			},
		},
		"no name of a resource": {
			text: prefix + "    resources:\n    - {name: nvidia.com/GPU A, replicas: 2}\n", want: problems{
				fatal(5, "sharing.timeSlicing.resources[0].name is nvidia.com/GPU A, which is no name of a resource: "+
					"use nvidia.com/gpu, or nvidia.com/mig- and a profile"),
			},
		},
		"values of other types": {
			text: "version: v1\nflags:\n  mpsRoot: 5\n  nvidiaDriverRoot: true\n  gfd:\n    sleepInterval: soon\n" +
				"    machineTypeFile: [a]\n  plugin: {nvidiaCTKPath: 1.5}\n", want: problems{
				fatal(3, "flags.mpsRoot must be a text: quote it"),
				fatal(4, "flags.nvidiaDriverRoot must be a text: quote it"),
				fatal(6, "flags.gfd.sleepInterval must be a duration, such as 60s"),
				fatal(7, "flags.gfd.machineTypeFile must be a text: quote it"),
				fatal(8, "flags.plugin.nvidiaCTKPath must be a text: quote it"),
			},
		},
		"another version": {text: "version: v2\n", want: problems{fatal(1, "version v2 is unknown: use v1")}},
		"replicas beside resources, as one guide has it": {
			text: prefix + "    replicas: 4\n", want: problems{
				fatal(4, "sharing.timeSlicing.resources is missing: add an entry with name and replicas"),
				ignored(4, "sharing.timeSlicing.replicas is ignored: "+
					"move it into an entry of resources, beside name: nvidia.com/gpu"),
			},
		},
		"no resources": {
			text: prefix + "    resources: []\n",
			want: problems{fatal(4, "sharing.timeSlicing.resources must be a list of entries with name and replicas")},
		},
		"one replica": {
			text: prefix + "    resources:\n    - name: nvidia.com/gpu\n      replicas: 1\n",
			want: problems{fatal(6, "sharing.timeSlicing.resources[0].replicas is 1: it must be a number from 2")},
		},
		"replicas as text": {
			text: prefix + "    resources:\n    - {name: nvidia.com/gpu, replicas: \"4\"}\n",
			want: problems{fatal(5, "sharing.timeSlicing.resources[0].replicas is 4: it must be a number from 2")},
		},
		"an entry without name and replicas": {
			text: prefix + "    resources:\n    - {}\n", want: problems{
				fatal(5, "sharing.timeSlicing.resources[0].name is missing: add one, such as nvidia.com/gpu"),
				fatal(5, "sharing.timeSlicing.resources[0].replicas is missing: add a number from 2"),
			},
		},
		"keys that the plugin ignores": {
			text: prefix + "    renameByDefalt: true\n    resources:\n" +
				"    - {name: nvidia.com/gpu, replicas: 4, rename: gpu.mine, devices: [0]}\n",
			want: problems{
				ignored(4, "sharing.timeSlicing.renameByDefalt is ignored: "+
					"use renameByDefault, failRequestsGreaterThanOne, resources"),
				ignored(6, "sharing.timeSlicing.resources[0].rename is ignored: set renameByDefault"),
				ignored(6, "sharing.timeSlicing.resources[0].devices is ignored: all devices are shared"),
			},
		},
		"a MIG block": {
			text: "version: v1\nsharing:\n  mig: {strategy: mixed}\n", want: problems{ignored(3, "sharing.mig is ignored: "+
				"set spec.mig.strategy, and share MIG devices by their names in timeSlicing.resources")},
		},
		"at the wrong level": {
			text: "version: v1\ntimeSlicing:\n  replicas: 4\n",
			want: problems{ignored(2, "timeSlicing is ignored: move it below sharing")},
		},
		// The plugin decodes by encoding/json, which takes the keys of structs in any case, and those of maps in one.
		"keys in another case": {
			text: "Version: v1\nFlags: {MIGStrategy: mixed, Plugin: {DeviceIDStrategy: uuid}}\nSharing:\n  timeslicing:\n" +
				entry,
		},
		"keys in another case whose values are wrong": {
			text: "Version: v2\nFLAGS: {MIGStrategy: double}\n", want: problems{
				fatal(1, "version v2 is unknown: use v1"),
				fatal(2, "flags.migStrategy double is unknown: use none, single, mixed"),
			},
		},
		"keys of sharing in another case": {
			text: prefix + "    RenameByDefault: true\n    Resources:\n    - {name: nvidia.com/gpu, replicas: 4}\n",
			want: problems{
				fatal(4, "sharing.timeSlicing.resources is missing: add an entry with name and replicas"),
				ignored(4, "sharing.timeSlicing.RenameByDefault is ignored: "+
					"use renameByDefault, failRequestsGreaterThanOne, resources"),
				ignored(5, "sharing.timeSlicing.Resources is ignored: "+
					"use renameByDefault, failRequestsGreaterThanOne, resources"),
			},
		},
		"keys of an entry in another case": {
			text: prefix + "    resources:\n    - {Name: nvidia.com/gpu, Replicas: 4}\n", want: problems{
				ignored(5, "sharing.timeSlicing.resources[0].Name is ignored: use name, replicas, devices, rename"),
				ignored(5, "sharing.timeSlicing.resources[0].Replicas is ignored: use name, replicas, devices, rename"),
				fatal(5, "sharing.timeSlicing.resources[0].name is missing: add one, such as nvidia.com/gpu"),
				fatal(5, "sharing.timeSlicing.resources[0].replicas is missing: add a number from 2"),
			},
		},
		"a strategy that does not exist": {
			text: "version: v1\nflags: {migStrategy: double}\n",
			want: problems{fatal(2, "flags.migStrategy double is unknown: use none, single, mixed")},
		},
		"both": {
			text: prefix + entry + "  mps:\n" + entry,
			want: problems{ignored(4, "sharing.timeSlicing is ignored beside sharing.mps: remove one of them")},
		},
		"no boolean": {
			text: prefix + "    renameByDefault: \"yes\"\n" + entry,
			want: problems{fatal(4, "sharing.timeSlicing.renameByDefault must be true or false")},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := pluginfile.Check([]byte(test.text))
			if diff := cmp.Diff(test.want, problems(got)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			isFatal := false
			for _, problem := range test.want {
				isFatal = isFatal || problem.Fatal
			}
			if first := pluginfile.Fatal(got); (first != nil) != isFatal {
				t.Errorf("fatal: %v", first)
			}
		})
	}
}

// setting is a configuration with one value.
func setting(path, value string) []byte {
	for _, name := range slices.Backward(strings.Split(path, ".")) {
		value = "{" + name + ": " + value + "}"
	}
	return []byte(value)
}

// Each key has the type that the plugin reads. Where a variable of the container has precedence, another value than
// that of the variable is reported with what to set.
func TestKeys(t *testing.T) {
	const boolean, path = " must be true or false", " must be a text: quote it"
	const plugin, driver = " in spec.devicePlugin.env", "set spec.hostPaths.driverInstallDir"
	for key, test := range map[string]struct {
		// wrong is the problem of a number; right has no problem, and other is ignored, with this remedy.
		wrong, right, other, remedy string
	}{
		"flags.failOnInitError":            {boolean, "true", "false", "set FAIL_ON_INIT_ERROR" + plugin},
		"flags.gdrcopyEnabled":             {boolean, "true", "false", "set GDRCOPY_ENABLED" + plugin},
		"flags.gdsEnabled":                 {boolean, "true", "false", "set GDS_ENABLED" + plugin},
		"flags.mofedEnabled":               {boolean, "on", "off", "set MOFED_ENABLED" + plugin},
		"flags.useNodeFeatureAPI":          {boolean, "false", "true", "set USE_NODE_FEATURE_API in spec.gfd.env"},
		"flags.mpsRoot":                    {path, "", "/mps", "set spec.devicePlugin.mps.root"},
		"flags.nvidiaDriverRoot":           {path, "", "/a", driver},
		"flags.nvidiaDevRoot":              {path, "", "/a", driver},
		"flags.plugin.passDeviceSpecs":     {boolean, "true", "false", "set PASS_DEVICE_SPECS" + plugin},
		"flags.plugin.cdiAnnotationPrefix": {path, "cdi.k8s.io/", "a/", "set CDI_ANNOTATION_PREFIX" + plugin},
		"flags.plugin.nvidiaCTKPath":       {path, "", "/a", "set NVIDIA_CDI_HOOK_PATH" + plugin},
		"flags.plugin.containerDriverRoot": {path, "/driver-root", "/a", driver},
		"flags.gfd.oneshot":                {boolean, "false", "true", "restart: remove it"},
		"flags.gfd.noTimestamp":            {boolean, "true", "", ""},
		"flags.gfd.outputFile": {
			path, "/etc/kubernetes/node-feature-discovery/features.d/gfd", "/a", "features.d/gfd: remove it",
		},
		"flags.gfd.machineTypeFile": {path, "/sys/class/dmi/id/product_name", "", ""},
		"imex.required":             {boolean, "true", "", ""},
		"health.disabled":           {boolean, "true", "", ""},
	} {
		t.Run(key, func(t *testing.T) {
			want := []pluginfile.Problem{{Line: 1, Fatal: true, Message: key + test.wrong}}
			if diff := cmp.Diff(want, pluginfile.Check(setting(key, "3"))); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if test.right != "" {
				if got := pluginfile.Check(setting(key, test.right)); len(got) > 0 {
					t.Errorf("%s: %v", test.right, got)
				}
			}
			if test.other == "" {
				return
			}
			got := pluginfile.Check(setting(key, test.other))
			if len(got) != 1 || got[0].Fatal || !strings.HasPrefix(got[0].Message, key+" ") ||
				!strings.HasSuffix(got[0].Message, test.remedy) {
				t.Errorf("%s: got %v, want it ignored: %s", test.other, got, test.remedy)
			}
		})
	}
}

// The name of a resource has at most 63 bytes, with the prefix that the plugin adds.
func TestLengthOfResourceNames(t *testing.T) {
	const profile = 48
	for name, isFatal := range map[string]bool{
		"nvidia.com/mig-" + strings.Repeat("a", profile):   false,
		"nvidia.com/mig-" + strings.Repeat("a", profile+1): true,
		"mig-" + strings.Repeat("a", profile):              false,
		"mig-" + strings.Repeat("a", profile+1):            true,
	} {
		problems := pluginfile.Check(setting("sharing.timeSlicing.resources", "[{replicas: 2, name: "+name+"}]"))
		if got := pluginfile.Fatal(problems) != nil; got != isFatal || !isFatal && len(problems) > 0 {
			t.Errorf("%s: %v", name, problems)
		}
	}
}

func TestMIGStrategy(t *testing.T) {
	for content, want := range map[string]pluginfile.Strategy{
		"version: v1\nflags:\n  migStrategy: mixed\n": {Value: "mixed", Line: 3}, "migStrategy: mixed": {},
		"flags: {migStrategy: null}": {}, "flags: {plugin: {}}": {}, "flags: [migStrategy]": {}, "version: v1": {},
		"- flags": {}, "": {}, "{": {},
	} {
		if got := pluginfile.MIGStrategy([]byte(content)); got != want {
			t.Errorf("%s: got %v, want %v", content, got, want)
		}
	}
}

func TestReplicas(t *testing.T) {
	const slices, mig = "sharing: {timeSlicing: {resources: [", "{name: nvidia.com/mig-1g.5gb, replicas: 3}"
	for content, want := range map[string]int{
		slices + mig + ", {name: nvidia.com/gpu, replicas: 4}]}}":            4,
		"sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}": 2,
		slices + mig + "]}}":                                                0,
		slices + "{name: nvidia.com/gpu, replicas: x}]}}":                   0,
		slices + "{name: gpu, replicas: 3}]}}":                              3,
		slices + "{name: gpu, Replicas: 3}]}}":                              0,
		"Sharing: {TimeSlicing: {resources: [{name: gpu, replicas: 3}]}}":   3,
		"x: &s {resources: [{name: gpu, replicas: 3}]}\nsharing: {mps: *s}": 3,
		"version: v1": 0, "{": 0, "sharing: []": 0,
	} {
		if got := pluginfile.Replicas([]byte(content), "nvidia.com/gpu"); got != want {
			t.Errorf("%s: got %d, want %d", content, got, want)
		}
	}
}

func TestMPSLine(t *testing.T) {
	for content, want := range map[string]int{
		"version: v1\nsharing:\n  mps: {}\n": 3, "sharing: {timeSlicing: {}}": 0, "version: v1": 0, "{": 0, "": 0,
		"sharing: []": 0,
	} {
		if got := pluginfile.MPSLine([]byte(content)); got != want {
			t.Errorf("%s: got %d, want %d", content, got, want)
		}
	}
}

func TestIsPluginFile(t *testing.T) {
	for text, want := range map[string]bool{
		"version: v1\nsharing: {}\n": true, "flags: {a: b}": true, "timeSlicing: {replicas: 4}": true,
		"version: v1\nmig-configs: {}\n": false, "": false, "{": false, "sharing: {": true, "no flags": false,
		"version: v1\nshareing: {}\n": true, "version: v1\nsystemd-services: []\n": false, "imex: {}": false,
		"[sharing, a]": false, "# sharing": false, "- a": false, "text": false, "Sharing: {}": true, "SHAREING: {}": false,
	} {
		if got := pluginfile.IsPluginFile([]byte(text)); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
}

// A text without any key of the format is checked where the device plugin is to read it.
func TestCheckNamed(t *testing.T) {
	problem := func(fatal, unlike bool, message string) []pluginfile.Problem {
		return []pluginfile.Problem{{Line: 1, Fatal: fatal, Unlike: unlike, Message: message}}
	}
	const use = " is ignored: use version, flags, resources, sharing, imex, health"
	for content, want := range map[string][]pluginfile.Problem{
		"":                        nil,
		"# nothing":               nil,
		"mig-configs: {}":         nil,
		"sharing: {}":             nil,
		"sharing: []":             problem(true, false, "sharing must be a mapping of keys"),
		"shareing: {mps: {}}":     problem(false, true, "shareing"+use),
		"- a":                     problem(true, true, "the configuration must be a mapping of keys"),
		"text":                    problem(true, true, "the configuration must be a mapping of keys"),
		"imex: {channelIDs: [1]}": problem(true, true, "imex.channelIDs must be [] or [0]"),
	} {
		if diff := cmp.Diff(want, pluginfile.CheckNamed([]byte(content))); diff != "" {
			t.Errorf("%q: -want +got:\n%s", content, diff)
		}
	}
}
