package configfile

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/clusterpolicy/gpu-operator/internal/kube/yamlnode"
	"github.com/clusterpolicy/gpu-operator/internal/names/text"
)

// version is the only version of both formats of the MIG manager.
const version = "v1"

// MIGLayouts returns why the MIG manager, which then uses none of the layouts, does not take a file of them: a sentence
// for each line, at most 4. The format is api/spec/v1 of NVIDIA/mig-parted. A file that is no YAML, or that has no
// layouts, has none here: the caller refuses it.
func MIGLayouts(content string) []string {
	root, _ := parse(content)
	if root == nil || yamlnode.HasAlias(root) {
		return nil
	}
	var found problems
	if is := yamlnode.Field(root, "version"); is == nil {
		found.add(root, "key version is missing: add version: %s", version)
	} else if is.Value != version {
		found.add(is, "version %s is unknown: use %s", text.Truncate(is.Value, maxValue), version)
	}
	found.unknown(root, "version", "mig-configs")
	if layouts := yamlnode.Field(root, "mig-configs"); layouts != nil && layouts.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(layouts.Content); i += 2 {
			found.layout(layouts.Content[i], layouts.Content[i+1])
		}
	}
	return found.first()
}

// layout checks one layout: a list of entries, each for some of the GPUs.
func (p *problems) layout(name, entries *yaml.Node) {
	if entries.Kind != yaml.SequenceNode || len(entries.Content) == 0 {
		p.add(name, "layout %s must be a list with an entry for each kind of GPU", text.Truncate(name.Value, maxValue))
		return
	}
	for _, entry := range entries.Content {
		if entry.Kind != yaml.MappingNode {
			p.add(entry, "must have the keys devices and mig-enabled")
			continue
		}
		p.entry(entry)
	}
}

func (p *problems) entry(entry *yaml.Node) {
	p.unknown(entry, "device-filter", "devices", "mig-enabled", "mig-devices")
	switch devices := yamlnode.Field(entry, "devices"); {
	case devices == nil:
		p.add(entry, "key devices is missing: add devices: all")
	case devices.Kind == yaml.ScalarNode && devices.Value != "all",
		slices.ContainsFunc(devices.Content, isNoNumber):
		p.add(devices, "devices must be all, or a list of numbers of GPUs such as [0, 1]")
	}
	profiles := yamlnode.Field(entry, "mig-devices")
	p.enabled(entry, profiles)
	for i := 1; profiles != nil && i < len(profiles.Content); i += 2 {
		if isNoNumber(profiles.Content[i]) {
			p.add(profiles.Content[i], "mig-devices must have a number for each profile, such as 1g.10gb: 7")
		}
	}
}

// enabled checks whether an entry enables MIG as its profiles, nil for none, require.
func (p *problems) enabled(entry, profiles *yaml.Node) {
	switch enabled := yamlnode.Field(entry, "mig-enabled"); {
	case enabled == nil:
		p.add(entry, "key mig-enabled is missing: add it with true or false")
	case isOneOf(enabled, truths):
		if profiles == nil {
			p.add(entry, "key mig-devices is missing: add it, with {} for none")
		}
	case !isOneOf(enabled, untruths):
		p.add(enabled, "mig-enabled must be true or false")
	case profiles != nil && len(profiles.Content) > 0:
		p.add(profiles, "mig-devices needs mig-enabled: true")
	}
}

// truths and untruths are the booleans of YAML 1.1, which the MIG manager reads, separated by spaces.
const (
	truths   = "true yes on y"
	untruths = "false no off n"
)

// isOneOf reports whether a value, without quotes, is one of these words.
func isOneOf(value *yaml.Node, words string) bool {
	return value.Style == 0 && slices.Contains(strings.Fields(words), strings.ToLower(value.Value))
}

func isNoNumber(node *yaml.Node) bool { return node.Tag != "!!int" }

// GPUClients returns why the MIG manager does not stop the services of a host that a file names: a sentence for each
// line, at most 4. A file with aliases is not checked.
func GPUClients(content string) []string {
	root, isYAML := parse(content)
	switch {
	case !isYAML:
		return []string{"cannot be read: it is no YAML"}
	case root == nil:
		return []string{"is no mapping: add version: " + version + " and systemd-services with the names of services"}
	case yamlnode.HasAlias(root):
		return nil
	}
	var found problems
	found.unknown(root, "version", "systemd-services")
	services := yamlnode.Field(root, "systemd-services")
	if services == nil || services.Kind != yaml.SequenceNode {
		found.add(root, "systemd-services must be a list of names of services: no service is stopped")
	}
	return found.first()
}
