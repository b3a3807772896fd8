package pluginfile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/clusterpolicy/gpu-operator/internal/kube/yamlnode"
	"github.com/clusterpolicy/gpu-operator/internal/names/text"
)

// Problem is something that a configuration does not say as its author may have intended.
type Problem struct {
	// Line of the configuration, from 1; 0 if unknown.
	Line int
	// Fatal: the device plugin ends at its start. Otherwise it ignores that part.
	Fatal bool
	// OwnDiscovery: that part is only ignored where the operator discovers nodes itself.
	OwnDiscovery bool
	// Unlike: the text has no key of the format, so it may be something else, unless the device plugin is to read it.
	Unlike bool
	// Message with the remedy.
	Message string
}

func (p Problem) String() string {
	if p.Line == 0 {
		return p.Message
	}
	return fmt.Sprintf("line %d: %s", p.Line, p.Message)
}

// version is the only version of the format, api/config/v1 of NVIDIA/k8s-device-plugin.
const version = "v1"

// prefix of resources, which the plugin adds where it is missing, and how long a name with it may be, in bytes.
const (
	prefix    = "nvidia.com/"
	maxLength = 63
)

// maxProblems bounds what is returned for one configuration, and maxValue what is quoted of it.
const (
	maxProblems = 8
	maxValue    = 32
)

// The keys that the format has.
var (
	topKeys      = []string{"version", "flags", "resources", "sharing", "imex", "health"}
	sharingKeys  = []string{"timeSlicing", "mps"}
	sharedKeys   = []string{"renameByDefault", "failRequestsGreaterThanOne", "resources"}
	resourceKeys = []string{"name", "replicas", "devices", "rename"}
	strategies   = []string{"none", "single", "mixed"}
)

// sharingBlocks and lists are the keys of sharing and of resources.
var (
	sharingBlocks = map[string]key{"timeSlicing": {}, "mps": {}}
	lists         = map[string]key{"gpus": {}, "mig": {}, "migs": {}}
)

// otherFiles are keys of other configurations that have a version: those of the MIG manager, of its clients, and of the
// vGPU device manager.
var otherFiles = []string{"mig-configs", "systemd-services", "vgpu-configs"}

// IsPluginFile reports whether a text may be a configuration of the device plugin, as ConfigMaps may have other texts.
// One that is no YAML may be.
func IsPluginFile(data []byte) bool {
	lower := bytes.ToLower(data)
	contains := func(word string) bool { return bytes.Contains(lower, []byte(word)) }
	if !slices.ContainsFunc([]string{"sharing", "timeslicing", "flags", "version"}, contains) ||
		slices.ContainsFunc(otherFiles, contains) {
		return false
	}
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil {
		return true
	}
	root := yamlnode.Root(&document)
	return root != nil && root.Kind == yaml.MappingNode &&
		slices.ContainsFunc([]string{"sharing", "timeSlicing", "flags", "version"}, func(key string) bool {
			return yamlnode.FieldFold(root, key) != nil
		})
}

// CheckNamed is Check for any text that the device plugin may be to read. Those of a text that IsPluginFile does not
// recognise are Unlike. An empty text, and a file of another program, have none.
func CheckNamed(data []byte) []Problem {
	if IsPluginFile(data) {
		return Check(data)
	}
	var document yaml.Node
	isYAML := yaml.Unmarshal(data, &document) == nil
	if isYAML && yamlnode.Root(&document) == nil || slices.ContainsFunc(otherFiles, func(key string) bool {
		return bytes.Contains(data, []byte(key))
	}) {
		return nil
	}
	problems := Check(data)
	for i := range problems {
		problems[i].Unlike = true
	}
	return problems
}

// Check returns the problems of a configuration, at most 8, the first one first.
func Check(data []byte) []Problem {
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil {
		return []Problem{{Fatal: true, Message: "cannot be read: " + reason(err)}}
	}
	root := yamlnode.Root(&document)
	if root == nil {
		return []Problem{{Message: "is empty and shares nothing: write the version v1, or remove the key"}}
	}
	aliased := yamlnode.HasAlias(root)
	if aliased {
		if root = yamlnode.Expanded(root); root == nil {
			return nil
		}
	}
	canonical(root)
	c := &checker{}
	if c.isMapping(root, "the configuration") {
		c.root(root)
	}
	if aliased {
		// Keys that the format does not have may be there to hold what the aliases repeat.
		c.problems = fatalOnes(c.problems)
	}
	slices.SortStableFunc(c.problems, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
	return c.problems[:min(len(c.problems), maxProblems)]
}

// Fatal returns the first problem with which the device plugin does not start, nil if there is none.
func Fatal(problems []Problem) *Problem {
	for i := range problems {
		if problems[i].Fatal {
			return &problems[i]
		}
	}
	return nil
}

// fatalOnes returns the problems with which the device plugin does not start.
func fatalOnes(problems []Problem) []Problem {
	var found []Problem
	for _, problem := range problems {
		if problem.Fatal {
			found = append(found, problem)
		}
	}
	return found
}

// reason returns the error of the parser in one line.
func reason(err error) string {
	var wrong *yaml.TypeError
	if errors.As(err, &wrong) {
		return strings.Join(wrong.Errors, "; ")
	}
	return strings.ReplaceAll(strings.TrimPrefix(err.Error(), "yaml: "), "\n", " ")
}

// checker collects problems.
type checker struct{ problems []Problem }

func (c *checker) fatal(at *yaml.Node, format string, args ...any) {
	c.problems = append(c.problems, Problem{Line: at.Line, Fatal: true, Message: fmt.Sprintf(format, args...)})
}

func (c *checker) ignored(at *yaml.Node, format string, args ...any) {
	c.problems = append(c.problems, Problem{Line: at.Line, Message: fmt.Sprintf(format, args...)})
}

// isMapping reports a node that is no mapping.
func (c *checker) isMapping(node *yaml.Node, what string) bool {
	if node.Kind != yaml.MappingNode {
		c.fatal(node, "%s must be a mapping of keys", what)
		return false
	}
	return true
}

// unknown reports the keys that the format does not have, each with its remedy if there is a certain one. Those of
// known may be in any case.
func (c *checker) unknown(mapping *yaml.Node, path string, known []string, remedies map[string]string) {
	c.unknownWhere(mapping, path, known, remedies, strings.EqualFold)
}

// unknownExact is unknown for keys that the device plugin reads in this case alone.
func (c *checker) unknownExact(mapping *yaml.Node, path string, known []string, remedies map[string]string) {
	c.unknownWhere(mapping, path, known, remedies, func(a, b string) bool { return a == b })
}

func (c *checker) unknownWhere(
	mapping *yaml.Node, path string, known []string, remedies map[string]string, same func(a, b string) bool,
) {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key := mapping.Content[i]
		if slices.ContainsFunc(known, func(name string) bool { return same(name, key.Value) }) {
			continue
		}
		remedy := remedies[key.Value]
		if remedy == "" {
			remedy = "use " + strings.Join(known, ", ")
		}
		c.ignored(key, "%s%s is ignored: %s", path, text.Truncate(key.Value, maxValue), remedy)
	}
}

func (c *checker) root(root *yaml.Node) {
	// The plugin takes a missing version for this one.
	if found := yamlnode.Field(root, "version"); found != nil && found.Value != version {
		c.fatal(found, "version %s is unknown: use %s", found.Value, version)
	}
	c.unknown(root, "", topKeys, map[string]string{
		"timeSlicing": "move it below sharing", "mps": "move it below sharing", "migStrategy": "set spec.mig.strategy",
	})
	if strategy := at(root, "flags.migStrategy"); strategy != nil && !slices.Contains(strategies, strategy.Value) {
		c.fatal(strategy, "flags.migStrategy %s is unknown: use %s", strategy.Value, strings.Join(strategies, ", "))
	}
	c.blocks(root)
	if sharing := yamlnode.Field(root, "sharing"); sharing != nil && c.isMapping(sharing, "sharing") {
		c.sharing(sharing)
	}
}

func (c *checker) sharing(sharing *yaml.Node) {
	c.unknown(sharing, "sharing.", sharingKeys, map[string]string{
		"mig": "set spec.mig.strategy, and share MIG devices by their names in timeSlicing.resources",
	})
	slicing, mps := yamlnode.Field(sharing, "timeSlicing"), yamlnode.Field(sharing, "mps")
	if slicing != nil && mps != nil {
		c.ignored(slicing, "sharing.timeSlicing is ignored beside sharing.mps: remove one of them")
	}
	if slicing != nil && c.isMapping(slicing, "sharing.timeSlicing") {
		c.replicated(slicing, "sharing.timeSlicing.")
	}
	if mps != nil && c.isMapping(mps, "sharing.mps") {
		c.replicated(mps, "sharing.mps.")
	}
	// The plugin takes only that of MPS for none.
	if slicing := withoutValue(sharing, "timeSlicing"); slicing != nil {
		c.fatal(slicing, "sharing.timeSlicing has no value: add resources, or remove it")
	}
}

func (c *checker) replicated(block *yaml.Node, path string) {
	const entry = "move it into an entry of resources, beside name: nvidia.com/gpu"
	remedies := map[string]string{"replicas": entry, "name": entry, "devices": entry}
	resources := yamlnode.Field(block, "resources")
	if resources == nil {
		c.fatal(block, "%sresources is missing: add an entry with name and replicas", path)
	}
	c.unknownExact(block, path, sharedKeys, remedies)
	for _, key := range []string{"renameByDefault", "failRequestsGreaterThanOne"} {
		if value := yamlnode.Field(block, key); value != nil && !isBool(value) {
			c.fatal(value, "%s%s must be true or false", path, key)
		}
	}
	switch {
	case resources == nil:
	case resources.Kind != yaml.SequenceNode || len(resources.Content) == 0:
		c.fatal(resources, "%sresources must be a list of entries with name and replicas", path)
	default:
		for i, resource := range resources.Content {
			if at := fmt.Sprintf("%sresources[%d]", path, i); c.isMapping(resource, at) {
				c.resource(resource, at+".")
			}
		}
	}
}

// isBool reports whether the plugin, which reads YAML 1.1, takes a value for a boolean.
func isBool(value *yaml.Node) bool {
	return value.Tag == "!!bool" || value.Style == 0 &&
		slices.Contains([]string{"yes", "no", "on", "off", "y", "n"}, strings.ToLower(value.Value))
}

func (c *checker) resource(resource *yaml.Node, path string) {
	c.unknownExact(resource, path, resourceKeys, nil)
	switch name := yamlnode.Field(resource, "name"); {
	case name == nil || name.Value == "":
		c.fatal(resource, "%sname is missing: add one, such as nvidia.com/gpu", path)
	default:
		c.resourceName(name, path)
	}
	switch replicas := yamlnode.Field(resource, "replicas"); {
	case replicas == nil:
		c.fatal(resource, "%sreplicas is missing: add a number from 2", path)
	default:
		if count, isNumber := number(replicas); !isNumber || count < 2 {
			c.fatal(replicas, "%sreplicas is %s: it must be a number from 2", path, text.Truncate(replicas.Value, maxValue))
		}
	}
	switch rename := cmp.Or(yamlnode.Field(resource, "rename"), withoutValue(resource, "rename")); {
	case rename == nil:
	case !isResource(rename):
		c.fatal(rename, "%srename is %s, which is no name of a resource: remove it, and set renameByDefault", path,
			text.Truncate(rename.Value, maxValue))
	default:
		c.ignored(rename, "%srename is ignored: set renameByDefault", path)
	}
	if devices := cmp.Or(yamlnode.Field(resource, "devices"), withoutValue(resource, "devices")); devices != nil {
		c.devices(devices, path)
	}
}

// number returns the value of a node that the plugin takes for a whole number.
func number(node *yaml.Node) (int, bool) {
	if node.Tag == "!!int" {
		value, err := strconv.ParseInt(node.Value, 0, 0)
		return int(value), err == nil
	}
	value, err := strconv.ParseFloat(node.Value, 64)
	return int(value), err == nil && node.Tag == "!!float" && value == float64(int(value))
}

// devices reports which devices an entry names: the plugin shares all, and reads no other text, and no number below 1.
func (c *checker) devices(devices *yaml.Node, path string) {
	count, isNumber := number(devices)
	isCount := isNumber && count > 0
	isList := devices.Kind == yaml.SequenceNode && !slices.ContainsFunc(devices.Content, func(device *yaml.Node) bool {
		return !isDevice(device.Value)
	})
	switch {
	case devices.Value == "all" && isText(devices):
	case isCount, isList:
		c.ignored(devices, "%sdevices is ignored: all devices are shared", path)
	default:
		c.fatal(devices, "%sdevices must be all: remove it", path)
	}
}

// isDevice matches how the plugin names a device: by the index of a GPU or of a MIG device, or by a UUID.
var isDevice = regexp.MustCompile(`^(?:[0-9]+(?::[0-9]+)?|(?:GPU|MIG)-[0-9a-fA-F-]{32,36}|` +
	`MIG-GPU-[0-9a-fA-F-]{32,36}/[0-9]+/[0-9]+)$`).MatchString

// isSubdomain matches what the plugin accepts behind the prefix of a resource's name.
var isSubdomain = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`).MatchString

// isResource reports whether the plugin takes a value for the name of a resource, to which it adds a missing prefix.
func isResource(name *yaml.Node) bool {
	bare := strings.TrimPrefix(name.Value, prefix)
	return isText(name) && isSubdomain(bare) && len(prefix+bare) <= maxLength
}

// resourceName reports the name of a resource that is not shared: one that the device plugin does not advertise, which
// it ignores, and MIG devices by MPS.
func (c *checker) resourceName(name *yaml.Node, path string) {
	bare := strings.TrimPrefix(name.Value, prefix)
	switch isMIG := strings.HasPrefix(bare, "mig-"); {
	case !isResource(name):
		c.fatal(name, "%sname is %s, which is no name of a resource: use nvidia.com/gpu, or nvidia.com/mig- and a profile",
			path, text.Truncate(name.Value, maxValue))
	case isMIG && strings.HasPrefix(path, "sharing.mps."):
		c.ignored(name, "%sname is %s: MIG devices cannot be shared by MPS, use timeSlicing", path,
			text.Truncate(name.Value, maxValue))
	case !isMIG && bare != "gpu":
		c.ignored(name, "%sname is %s, which shares nothing: use nvidia.com/gpu, or nvidia.com/mig- and a profile", path,
			text.Truncate(name.Value, maxValue))
	}
}
