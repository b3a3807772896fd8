package operand

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/text"
	"github.com/clusterpolicy/gpu-operator/internal/policy/pluginfile"
)

// pluginConfigField names the ConfigMap with the configurations of the device plugin.
const pluginConfigField = "spec.devicePlugin.config.name"

// checkPluginConfig refuses a configuration for all nodes with which the device plugin would not start: it must not
// replace one that works. Without any configuration gpu-node configure ends, before the plugin starts.
func (in Input) checkPluginConfig(use Use, content Content) Decision {
	if len(content.Keys) == 0 && !content.Assumed {
		return Refuse(v1.ReasonReferenceMissing, fmt.Sprintf("%s: %s%s has no keys: add one with a configuration",
			use.Field, use.Reference, in.inNamespace(use.Kind)))
	}
	key, _ := in.DefaultPluginConfig()
	problem := pluginfile.Fatal(in.pluginProblems(content, key))
	if key == "" || problem == nil {
		return Accept()
	}
	return Refuse(v1.ReasonPluginConfigInvalid, fmt.Sprintf("%s: %s, key %s, %s", use.Field, use.Reference, key, problem))
}

// pluginProblems returns the problems of a configuration: its own, and that the device plugin does not start with MPS
// beside the MIG strategy mixed, which the spec may set.
func (in Input) pluginProblems(content Content, key string) []pluginfile.Problem {
	problems := content.Problems[key]
	strategy := cmp.Or(string(in.Spec.MIG.Strategy), content.Strategies[key].Value)
	if line := content.MPSLines[key]; line > 0 && strategy == string(v1.MIGStrategyMixed) {
		problems = append(slices.Clip(problems), pluginfile.Problem{
			Line: line, Fatal: true, Message: "sharing.mps cannot share GPUs with the MIG strategy mixed: use timeSlicing",
		})
	}
	return problems
}

// PluginConfigNotes returns a sentence for each part of the device plugin's configurations that the plugin ignores, or
// with which it would not start on a node that selects that one by its label.
func (in Input) PluginConfigNotes() []string {
	reference := Reference{ConfigMap, in.Spec.DevicePlugin.Config.Name}
	content := in.Contents[reference]
	common, _ := in.DefaultPluginConfig()
	var notes []string
	for _, key := range content.Keys {
		for _, problem := range in.pluginProblems(content, key) {
			if problem.OwnDiscovery && in.Spec.NodeDiscovery.Mode == v1.DiscoveryNFD || problem.Unlike && key != common {
				continue
			}
			if !problem.Fatal || key != common {
				notes = append(notes, fmt.Sprintf("%s: %s, key %s, %s", pluginConfigField, reference, key, problem))
			}
		}
		if overridden := in.overriddenStrategy(content, key); overridden != "" {
			notes = append(notes, fmt.Sprintf("%s: %s, key %s, %s", pluginConfigField, reference, key, overridden))
		}
	}
	return notes
}

// ConfigProblem is why the configuration that a node selects by its label is not used.
type ConfigProblem struct {
	Message string
	// Fatal: the device plugin does not start on the node.
	Fatal bool
}

// overriddenStrategy returns that the MIG strategy of a configuration is not used, because the spec sets another one:
// the device plugin prefers its environment. It is empty if it is used.
func (in Input) overriddenStrategy(content Content, key string) string {
	strategy, ofSpec := content.Strategies[key], in.Spec.MIG.Strategy
	if strategy.Value == "" || ofSpec == "" || strategy.Value == string(ofSpec) {
		return ""
	}
	return fmt.Sprintf("line %d: flags.migStrategy %s has no effect: mig.strategy is %s. Remove one of them, or set "+
		"mig.strategy of the nodes' pool in spec.nodePools", strategy.Line, strategy.Value, ofSpec)
}

// CheckPluginConfig returns why the configuration of a node, or a part of it, is not used; the zero problem if it is.
// value is that of the node's label, empty if it has none.
func (in Input) CheckPluginConfig(value string) ConfigProblem {
	config := in.Spec.DevicePlugin.Config.Name
	if !*in.Spec.DevicePlugin.Enabled {
		// The label may be for another device plugin.
		return ConfigProblem{}
	}
	if value != "" {
		if problem := in.checkPluginConfigLabel(config, value); problem != (ConfigProblem{}) {
			return problem
		}
	}
	if config == "" {
		return ConfigProblem{}
	}
	reference, key := Reference{ConfigMap, config}, value
	if key == "" {
		key, _ = in.DefaultPluginConfig()
	}
	if overridden := in.overriddenStrategy(in.Contents[reference], key); overridden != "" && in.Spec.Sharing == nil {
		return ConfigProblem{Message: fmt.Sprintf("%s, key %s, %s", reference, key, overridden)}
	}
	return ConfigProblem{}
}

// checkPluginConfigLabel returns why the configuration that a node selects by its label is not used.
func (in Input) checkPluginConfigLabel(config, value string) ConfigProblem {
	label := labels.DevicePluginConfig + "=" + value
	switch {
	case config == "" && in.Spec.Sharing != nil:
		return ConfigProblem{Message: fmt.Sprintf("label %s has no effect with spec.sharing: use spec.nodePools", label)}
	case config == "":
		return ConfigProblem{Message: fmt.Sprintf("label %s has no effect: set %s", label, pluginConfigField)}
	}
	reference := Reference{ConfigMap, config}
	content, known := in.Contents[reference]
	if !known || content.Assumed {
		return ConfigProblem{}
	}
	if len(content.Keys) == 0 {
		return ConfigProblem{Message: fmt.Sprintf("label %s: %s has no keys", label, reference), Fatal: true}
	}
	if !slices.Contains(content.Keys, value) {
		keys := text.Truncate(strings.Join(content.Keys, ", "), maxNames)
		message := fmt.Sprintf("label %s: %s has no such key, only %s", label, reference, keys)
		return ConfigProblem{Message: message, Fatal: true}
	}
	problems := in.pluginProblems(content, value)
	if problem := pluginfile.Fatal(problems); problem != nil {
		return ConfigProblem{Fatal: true, Message: fmt.Sprintf("label %s: %s, %s", label, reference, problem)}
	}
	if len(problems) > 0 && problems[0].Unlike {
		// PluginConfigNotes leaves these out, as the text may be something else where nothing selects it.
		return ConfigProblem{Message: fmt.Sprintf("label %s: %s, %s", label, reference, problems[0])}
	}
	return ConfigProblem{}
}

// NodePluginConfig is the configuration of a ConfigMap that the device plugin of a node reads; zero for none.
type NodePluginConfig struct {
	// Source is CONFIGMAP/KEY, and Digest that of its content; empty if there is no such key, or if it was not read.
	Source, Digest string
	// Broken: the device plugin would not start with it.
	Broken bool
}

// PluginConfigFor returns the configuration of a node whose label has this value; empty for the one of all nodes.
func (in Input) PluginConfigFor(value string) NodePluginConfig {
	config := in.Spec.DevicePlugin.Config.Name
	key := value
	if key == "" {
		key, _ = in.DefaultPluginConfig()
	}
	if config == "" || key == "" || in.Spec.Sharing != nil || !*in.Spec.DevicePlugin.Enabled {
		return NodePluginConfig{}
	}
	content := in.Contents[Reference{ConfigMap, config}]
	return NodePluginConfig{
		Source: config + "/" + key, Digest: content.KeyDigests[key],
		Broken: pluginfile.Fatal(in.pluginProblems(content, key)) != nil,
	}
}

// GPUReplicas returns how many pods share a GPU of a node whose label selects this configuration of the device plugin;
// empty for the one of all nodes. It is 0 if none, or an unknown number, do.
func (in Input) GPUReplicas(value string) int {
	if in.Spec.Sharing != nil {
		return in.Spec.GPUReplicas()
	}
	key := value
	if key == "" {
		key, _ = in.DefaultPluginConfig()
	}
	return in.Contents[Reference{ConfigMap, in.Spec.DevicePlugin.Config.Name}].Replicas[key]
}
