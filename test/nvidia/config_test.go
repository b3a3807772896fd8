//go:build linux

package nvidia

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/policy/pluginfile"
)

// accepts reports whether the device plugin starts with a configuration, and what it prints.
func (m *machine) accepts(config string) (accepted bool, printed string) {
	m.t.Helper()
	ctx, cancel := context.WithCancel(m.t.Context())
	defer cancel()
	path := m.write("config.yaml", config)
	p := m.command(ctx, append(rendered(m.t, true, ""), "CONFIG_FILE="+path, "KUBELET_SOCKET=", "DRIVER_ROOT_CTR_PATH="+
		m.root), nvidias)
	NewWithT(m.t).Expect(p.Start()).To(Succeed())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = p.Wait() }()
	looked := time.NewTicker(10 * time.Millisecond)
	defer looked.Stop()
	deadline := time.After(patience)
	for {
		select {
		case <-ended:
			return false, p.log.String()
		case <-looked.C:
			if strings.Contains(p.log.String(), "Running with config:") {
				cancel()
				<-ended
				return true, p.log.String()
			}
		case <-deadline:
			m.t.Fatalf("the device plugin neither starts nor ends\n%s", p.log)
		}
	}
}

// keyValue is a key of the format with a value that the plugin accepts and, unless it accepts all, one that it refuses.
type keyValue struct{ accepted, refused string }

// keys are those of the format by the mapping that has them; newer ones are not read by the plugin that is pinned.
var keys = map[string]map[string]keyValue{
	"": {
		"version": {"v1", "v2"}, "flags": {"{}", "[]"}, "resources": {"{}", "3"}, "sharing": {"{}", "3"},
		"imex": {"{}", "3"}, "health": {"{}", ""},
	},
	"sharing": {
		"timeSlicing": {"{resources: [{name: gpu, replicas: 2}]}", "{}"},
		"mps":         {"{resources: [{name: gpu, replicas: 2}]}", "{resources: []}"},
	},
	"flags": {
		"migStrategy": {"single", "some"}, "failOnInitError": {"false", "3"}, "mpsRoot": {"/a", "3"},
		"nvidiaDriverRoot": {"/a", "3"}, "nvidiaDevRoot": {"/a", "3"}, "gdrcopyEnabled": {"false", "a"},
		"gdsEnabled": {"false", "3"}, "mofedEnabled": {"false", "3"}, "useNodeFeatureAPI": {"false", "3"},
		"deviceDiscoveryStrategy": {"nvml", "pci"}, "plugin": {"{}", "3"}, "gfd": {"{}", "3"},
	},
	"flags.plugin": {
		"passDeviceSpecs": {"false", "3"}, "deviceListStrategy": {"[envvar]", "{a: b}"}, "deviceIDStrategy": {"index", "3"},
		"cdiAnnotationPrefix": {"a/", "3"}, "nvidiaCTKPath": {"/a", "3"}, "containerDriverRoot": {"/a", "3"},
		"sharedDevicesAllocationPolicy": {"packed", ""},
	},
	"flags.gfd": {
		"oneshot": {"false", "3"}, "noTimestamp": {"true", "3"}, "sleepInterval": {"5s", "soon"}, "outputFile": {"/a", "3"},
		"machineTypeFile": {"/a", "3"},
	},
	"imex":      {"channelIDs": {"[0]", "[1]"}, "required": {"true", "3"}},
	"health":    {"disabled": {"true", ""}, "eventTypes": {"a", ""}, "ignoredXIDs": {"a", ""}, "criticalXIDs": {"a", ""}},
	"resources": {"gpus": {"[]", "[{name: a}]"}, "mig": {"[]", "[{pattern: a}]"}, "migs": {"[]", ""}},
}

// in returns a configuration with a key of a mapping.
func in(mapping, key, value string) string {
	text, indent := "", ""
	for part := range strings.SplitSeq(mapping, ".") {
		if part != "" {
			text += indent + part + ":\n"
			indent += "  "
		}
	}
	return text + indent + key + ": " + value + "\n"
}

// files are configurations that no single key makes.
var files = map[string]string{
	"empty":                       "",
	"a comment":                   "# nothing\n",
	"null":                        "null\n",
	"a list":                      "- a\n",
	"no YAML":                     "version: v1\n sharing: x\n",
	"unknown keys":                "version: v1\na: b\nflags: {a: b}\nsharing: {a: b}\n",
	"no value of time slices":     "version: v1\nsharing:\n  timeSlicing:\n",
	"no value of MPS":             "version: v1\nsharing:\n  mps:\n",
	"no value of sharing":         "version: v1\nsharing:\n",
	"no value of flags":           "version: v1\nflags:\n",
	"no value of resources":       "version: v1\nsharing: {timeSlicing: {resources: }}\n",
	"both kinds of sharing":       sharing("gpu", 2, "") + "  mps: {resources: [{name: gpu, replicas: 3}]}\n",
	"one replica":                 sharing("gpu", 1, ""),
	"another name":                sharing("Bad_Name", 2, ""),
	"a name with a dot":           sharing("nvidia.com/mig-1g.10gb.me", 2, ""),
	"a long name":                 sharing("nvidia.com/"+strings.Repeat("a", 53), 2, ""),
	"an infinite interval":        "flags: {gfd: {sleepInterval: infinite}}\n",
	"an interval in numbers":      "flags: {gfd: {sleepInterval: 5}}\n",
	"an alias":                    "x: &a {resources: [{name: gpu, replicas: 2}]}\nsharing: {timeSlicing: *a}\n",
	"a name twice":                sharing("gpu", 2, "") + "    - {name: gpu, replicas: 3}\n",
	"a key twice":                 "version: v1\nflags: {migStrategy: single}\nflags: {migStrategy: bad}\n",
	"a key in other letters":      "version: v1\nSharing: {timeslicing: {resources: [{name: gpu, replicas: 1}]}}\n",
	"yes":                         sharing("gpu", 2, "    renameByDefault: yes\n"),
	"a quoted boolean":            sharing("gpu", 2, "    renameByDefault: \"true\"\n"),
	"no boolean":                  sharing("gpu", 2, "    failRequestsGreaterThanOne: 1\n"),
	"no value of a boolean":       sharing("gpu", 2, "    failRequestsGreaterThanOne:\n"),
	"a resource without name":     "sharing: {timeSlicing: {resources: [{pattern: a, name: }]}}\n",
	"resources of a pattern":      "resources: {gpus: [{pattern: \"*\", name: gpu}]}\n",
	"resources without a pattern": "resources: {gpus: [{name: gpu}]}\n",
	"resources of a bad name":     "resources: {gpus: [{pattern: a, name: Bad_Name}]}\n",
	"two strategies":              "flags: {plugin: {deviceListStrategy: [envvar, mounts]}}\n",
	"a strategy as text":          "flags: {plugin: {deviceListStrategy: mounts}}\n",
	"an unknown ID":               "flags: {plugin: {deviceIDStrategy: name}}\n",
}

// entries are members of the list of shared resources.
var entries = map[string]string{
	"replicas as text":        `{name: gpu, replicas: "2"}`,
	"replicas with a point":   "{name: gpu, replicas: 2.0}",
	"half a replica":          "{name: gpu, replicas: 2.5}",
	"hexadecimal replicas":    "{name: gpu, replicas: 0x10}",
	"no replicas":             "{name: gpu}",
	"no name":                 "{replicas: 2}",
	"no value of replicas":    "{name: gpu, replicas: }",
	"all devices":             "{name: gpu, replicas: 2, devices: all}",
	"no value of devices":     "{name: gpu, replicas: 2, devices: }",
	"devices by number":       "{name: gpu, replicas: 2, devices: 2}",
	"no devices by number":    "{name: gpu, replicas: 2, devices: 0}",
	"no devices":              "{name: gpu, replicas: 2, devices: []}",
	"devices by index":        `{name: gpu, replicas: 2, devices: [0, "1", "0:1"]}`,
	"devices by UUID":         "{name: gpu, replicas: 2, devices: [" + uuid(0) + "]}",
	"devices by another UUID": "{name: gpu, replicas: 2, devices: [GPU-0]}",
	"a device below 0":        "{name: gpu, replicas: 2, devices: [-1]}",
	"devices by a word":       "{name: gpu, replicas: 2, devices: some}",
	"a new name":              "{name: gpu, rename: mine, replicas: 2}",
	"a bad new name":          "{name: gpu, rename: Bad_Name, replicas: 2}",
	"no value of a new name":  "{name: gpu, rename: , replicas: 2}",
	"a number as name":        "{name: 5, replicas: 2}",
	"a number as new name":    "{name: gpu, rename: 5, replicas: 2}",
	"no mapping":              "gpu",
	"null":                    "null",
}

// TestEachConfigurationIsJudgedAsByTheDevicePlugin: what the operator calls fatal is what the plugin does not start
// with.
func TestEachConfigurationIsJudgedAsByTheDevicePlugin(t *testing.T) {
	t.Parallel()
	all := map[string]string{}
	for name, text := range files {
		all[name] = text
	}
	for name, entry := range entries {
		all["an entry with "+name] = "sharing:\n  timeSlicing:\n    resources:\n    - " + entry + "\n"
	}
	for mapping, of := range keys {
		for key, value := range of {
			all[mapping+"/"+key+" accepted"] = in(mapping, key, value.accepted)
			if value.refused != "" {
				all[mapping+"/"+key+" refused"] = in(mapping, key, value.refused)
			}
			all[mapping+"/"+key+" null"] = in(mapping, key, "")
		}
	}
	m := newMachine(t, h100)
	for name, text := range all {
		t.Run(name, func(t *testing.T) {
			accepted, printed := m.accepts(text)
			fatal := pluginfile.Fatal(pluginfile.Check([]byte(text)))
			switch {
			case accepted && fatal != nil:
				t.Errorf("the plugin starts, the operator calls it fatal: %s\n%s", fatal, text)
			case !accepted && fatal == nil:
				lines := strings.Split(strings.TrimSpace(printed), "\n")
				t.Errorf("the plugin does not start, the operator accepts it\n%s\n%s", text, lines[len(lines)-1])
			}
		})
	}
	m.knowsAll()
}

// TestAllKeysAreTried compares the keys of the table with those that the operator knows, from its remedy for another.
func TestAllKeysAreTried(t *testing.T) {
	t.Parallel()
	for mapping, of := range keys {
		g := NewWithT(t)
		problems := pluginfile.Check([]byte(in(mapping, "unheard", "3")))
		at := slices.IndexFunc(problems, func(p pluginfile.Problem) bool { return strings.Contains(p.Message, "unheard") })
		g.Expect(at).NotTo(BeNumerically("<", 0), fmt.Sprint(problems))
		_, list, found := strings.Cut(problems[at].Message, "use ")
		g.Expect(found).To(BeTrue(), problems[at].Message)
		var tried []string
		for key := range of {
			tried = append(tried, key)
		}
		g.Expect(tried).To(ConsistOf(strings.Split(list, ", ")), mapping)
	}
}
