package pluginfile

import (
	"maps"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/clusterpolicy/gpu-operator/internal/kube/yamlnode"
	"github.com/clusterpolicy/gpu-operator/internal/names/text"
)

// block is a mapping of the format with scalar keys.
type block struct {
	path string
	keys map[string]key
	// remedies of keys that the block does not have, where there is a certain one.
	remedies map[string]string
}

// key is what the format says about the value of a key. The zero key has any value.
type key struct {
	// bool, string, texts, duration: the plugin does not start with a value of another type; texts is a text, or a list.
	bool, string, texts, duration bool
	// values are those that exist; any if empty. Several may be in a list.
	values []string
	// fixed is the value that the operator sets by a variable of the container, which the plugin prefers: another value
	// in the file has no effect. Empty if it sets none. instead is what to set.
	fixed, instead string
	// breaks is what another value than fixed breaks, and the remedy. Empty if it breaks nothing.
	breaks string
	// ownDiscovery: the variable is only set where the operator discovers nodes itself.
	ownDiscovery bool
}

// installDir is the remedy for keys that say where the driver is, and features the file with the labels of GPU Feature
// Discovery.
const (
	installDir = "set spec.hostPaths.driverInstallDir"
	features   = "/etc/kubernetes/node-feature-discovery/features.d/gfd"
)

// variable returns the remedy for a key that a variable of the device plugin overrides.
func variable(name string) string { return "set " + name + " in spec.devicePlugin.env" }

// blocks are flags and the mappings below it, and health. flags.migStrategy has a check of its own.
func blocks() []block {
	const shares = "move it below sharing.timeSlicing or sharing.mps"
	text, path := key{}, key{string: true}
	boolean := key{bool: true}
	return []block{
		{"flags", map[string]key{
			"migStrategy":     text,
			"failOnInitError": {bool: true, fixed: "true", instead: variable("FAIL_ON_INIT_ERROR")},
			"mpsRoot":         {string: true, instead: "set spec.devicePlugin.mps.root"},
			// Those of the driver that was validated on the node.
			"nvidiaDriverRoot": {string: true, instead: installDir}, "nvidiaDevRoot": {string: true, instead: installDir},
			// Those of the modules that are loaded.
			"gdrcopyEnabled": {bool: true, fixed: "true", instead: variable("GDRCOPY_ENABLED")},
			"gdsEnabled":     {bool: true, fixed: "true", instead: variable("GDS_ENABLED")},
			"mofedEnabled":   {bool: true, fixed: "true", instead: variable("MOFED_ENABLED")},
			"useNodeFeatureAPI": {
				bool: true, fixed: "false", instead: "set USE_NODE_FEATURE_API in spec.gfd.env", ownDiscovery: true,
			},
			"deviceDiscoveryStrategy": {values: []string{"auto", "nvml", "tegra", "vfio"}},
			"plugin":                  text, "gfd": text,
		}, map[string]string{
			"renameByDefault": shares, "failRequestsGreaterThanOne": shares, "resources": shares, "replicas": shares,
			"timeSlicing": "move it below sharing", "mps": "move it below sharing",
			"strategy": "use flags.migStrategy, or set spec.mig.strategy",
		}},
		{"flags.plugin", map[string]key{
			"passDeviceSpecs": {bool: true, fixed: "true", instead: variable("PASS_DEVICE_SPECS")},
			"deviceListStrategy": {
				texts: true, fixed: "-", instead: variable("DEVICE_LIST_STRATEGY"),
			},
			"deviceIDStrategy": {
				string: true, fixed: "uuid", instead: variable("DEVICE_ID_STRATEGY"),
			},
			"cdiAnnotationPrefix":           {string: true, fixed: "cdi.k8s.io/", instead: variable("CDI_ANNOTATION_PREFIX")},
			"nvidiaCTKPath":                 {string: true, instead: variable("NVIDIA_CDI_HOOK_PATH")},
			"containerDriverRoot":           {string: true, fixed: "/driver-root", instead: installDir},
			"sharedDevicesAllocationPolicy": {values: []string{"distributed", "packed"}},
		}, nil},
		{"flags.gfd", map[string]key{
			"oneshot":       {bool: true, fixed: "false", breaks: "its pods end after each run, and restart: remove it"},
			"noTimestamp":   boolean,
			"sleepInterval": {duration: true, fixed: "60s", instead: "set GFD_SLEEP_INTERVAL in spec.gfd.env"},
			"outputFile": {
				string: true, fixed: features, breaks: "nodes get their labels from " + features + ": remove it",
			},
			"machineTypeFile": path,
		}, nil},
		{"imex", map[string]key{"channelIDs": text, "required": boolean}, nil},
		{"health", map[string]key{
			"disabled": boolean, "eventTypes": text, "ignoredXIDs": text, "criticalXIDs": text,
		}, nil},
	}
}

// at returns the mapping at a path, nil if there is none.
func at(root *yaml.Node, path string) *yaml.Node {
	for name := range strings.SplitSeq(path, ".") {
		if root == nil || root.Kind != yaml.MappingNode {
			return nil
		}
		root = yamlnode.Field(root, name)
	}
	return root
}

// blocks checks the mappings with scalar keys.
func (c *checker) blocks(root *yaml.Node) {
	for _, b := range blocks() {
		mapping := at(root, b.path)
		if mapping == nil || !c.isMapping(mapping, b.path) {
			continue
		}
		known := make([]string, 0, len(b.keys))
		for name := range b.keys {
			known = append(known, name)
		}
		slices.Sort(known)
		c.unknown(mapping, b.path+".", known, b.remedies)
		for _, name := range known {
			if value := yamlnode.Field(mapping, name); value != nil {
				c.value(value, b.path+"."+name, b.keys[name])
			}
		}
	}
	c.channels(at(root, "imex.channelIDs"))
	c.renamed(at(root, "resources"))
}

// value checks the value of a key.
func (c *checker) value(value *yaml.Node, path string, k key) {
	if !c.hasType(value, path, k) {
		return
	}
	found := []*yaml.Node{value}
	if value.Kind == yaml.SequenceNode {
		found = value.Content
	}
	for _, one := range found {
		if len(k.values) > 0 && !slices.Contains(k.values, one.Value) {
			c.fatal(one, "%s %s is unknown: use %s", path, text.Truncate(one.Value, maxValue), strings.Join(k.values, ", "))
			return
		}
	}
	switch {
	case k.bool && isTrue(value) == isTrue(&yaml.Node{Value: k.fixed}) && k.fixed != "", value.Value == k.fixed:
	case k.breaks != "":
		c.ignored(value, "%s cannot be %s: %s", path, text.Truncate(value.Value, maxValue), k.breaks)
	case k.instead != "":
		c.ignored(value, "%s has no effect, as a variable of the container has precedence: %s", path, k.instead)
		c.problems[len(c.problems)-1].OwnDiscovery = k.ownDiscovery
	}
}

// hasType reports a value of another type than that of its key.
func (c *checker) hasType(value *yaml.Node, path string, k key) bool {
	switch {
	case k.bool && !isBool(value):
		c.fatal(value, "%s must be true or false", path)
	case k.string && !isText(value):
		c.fatal(value, "%s must be a text: quote it", path)
	case k.texts && !isTexts(value):
		c.fatal(value, "%s must be a text, or a list of texts: quote them", path)
	case k.duration && !isDuration(value):
		c.fatal(value, "%s must be a duration, such as 60s", path)
	default:
		return true
	}
	return false
}

// isText reports whether the plugin takes a value for a text.
func isText(value *yaml.Node) bool {
	return value.Kind == yaml.ScalarNode && value.Tag != "!!int" && value.Tag != "!!float" && !isBool(value)
}

// isTexts reports whether the plugin takes a value for a text or a list of them.
func isTexts(value *yaml.Node) bool {
	noText := func(one *yaml.Node) bool { return !isText(one) }
	return isText(value) || value.Kind == yaml.SequenceNode && !slices.ContainsFunc(value.Content, noText)
}

// isDuration reports whether the plugin can read a duration; a number has nanoseconds.
func isDuration(value *yaml.Node) bool {
	if value.Tag == "!!int" || value.Tag == "!!float" {
		return true
	}
	_, err := time.ParseDuration(value.Value)
	return err == nil || value.Value == "infinite"
}

// isTrue reports whether the plugin takes a boolean for true.
func isTrue(value *yaml.Node) bool {
	return slices.Contains([]string{"true", "yes", "on", "y"}, strings.ToLower(value.Value))
}

// channels checks the IDs of IMEX channels: the device plugin has only the channel 0.
func (c *checker) channels(ids *yaml.Node) {
	switch {
	case ids == nil:
	case ids.Kind != yaml.SequenceNode, len(ids.Content) > 1, len(ids.Content) == 1 && ids.Content[0].Value != "0":
		c.fatal(ids, "imex.channelIDs must be [] or [0]")
	}
}

// renamed reports names of resources: the device plugin reads them, and does not support them yet.
func (c *checker) renamed(resources *yaml.Node) {
	if resources == nil || !c.isMapping(resources, "resources") {
		return
	}
	known := slices.Sorted(maps.Keys(lists))
	c.unknown(resources, "resources.", known, nil)
	for _, name := range known {
		list := yamlnode.Field(resources, name)
		if list == nil || len(list.Content) == 0 {
			continue
		}
		if bad := slices.IndexFunc(list.Content, func(entry *yaml.Node) bool { return !isNamed(entry) }); bad >= 0 {
			c.fatal(list.Content[bad], "resources.%s[%d] has no pattern or no name of a resource: remove it", name, bad)
			continue
		}
		c.ignored(list, "resources.%s is ignored: the device plugin does not rename resources, remove it", name)
	}
}

// isNamed reports whether the plugin can read an entry that names resources by a pattern of devices.
func isNamed(entry *yaml.Node) bool {
	if entry.Kind != yaml.MappingNode {
		return false
	}
	pattern, name := yamlnode.Field(entry, "pattern"), yamlnode.Field(entry, "name")
	hasPattern := pattern != nil && isText(pattern) || withoutValue(entry, "pattern") != nil
	return hasPattern && name != nil && isResource(name)
}
