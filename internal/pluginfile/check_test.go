package pluginfile_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clusterpolicy/gpu-operator/internal/pluginfile"
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
		"flags alone": {text: "version: v1\nflags: {migStrategy: mixed, plugin: {deviceIDStrategy: index}}\n"},
		"MPS":         {text: "version: v1\nsharing:\n  mps:\n" + entry},
		"several resources": {
			text: prefix + entry + "    - {name: nvidia.com/mig-1g.10gb, replicas: 2, devices: all}\n",
		},
		"sharing of nothing": {text: "version: v1\nsharing: {}\n"},
		"an empty text":      {want: problems{fatal(0, "is empty: write the version v1, or remove the key")}},
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

func TestReplicas(t *testing.T) {
	for text, want := range map[string]int{
		"sharing: {timeSlicing: {resources: [{name: nvidia.com/mig-1g.5gb, replicas: 3}, {name: nvidia.com/gpu, replicas: 4}]}}": 4,
		"sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}":                                                     2,
		"sharing: {timeSlicing: {resources: [{name: nvidia.com/mig-1g.5gb, replicas: 3}]}}":                                      0,
		"version: v1": 0, "{": 0, "sharing: []": 0, "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: x}]}}": 0,
	} {
		if got := pluginfile.Replicas([]byte(text), "nvidia.com/gpu"); got != want {
			t.Errorf("%s: got %d, want %d", text, got, want)
		}
	}
}

func TestIsPluginFile(t *testing.T) {
	for text, want := range map[string]bool{
		"version: v1\nsharing: {}\n": true, "flags: {a: b}": true, "timeSlicing: {replicas: 4}": true,
		"version: v1\nmig-configs: {}\n": false, "": false, "{": false, "sharing: {": true, "no flags": false,
		"- a": false, "text": false,
	} {
		if got := pluginfile.IsPluginFile([]byte(text)); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
}
