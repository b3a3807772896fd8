package operand_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/policy/pluginfile"
)

var (
	broken  = pluginfile.Problem{Line: 6, Fatal: true, Message: "replicas is 1: it must be a number from 2"}
	ignored = pluginfile.Problem{Line: 3, Message: "sharing.mig is ignored: set spec.mig.strategy"}
)

// configs has the configurations.
var configs = operand.Reference{Kind: operand.ConfigMap, Name: "configs"}

// configured returns an input with three configurations, one of which is for all nodes.
func configured(common string, problems map[string][]pluginfile.Problem) operand.Input {
	config := &v1.DevicePluginConfigSpec{Name: "configs", Default: v1.DataKey(common)}
	return operand.Input{
		Spec:      effective.Of(v1.ClusterPolicySpec{DevicePlugin: &v1.DevicePluginSpec{Config: config}}),
		Namespace: "gpus",
		Contents: map[operand.Reference]operand.Content{
			configs: {Keys: []string{"four", "none", "two"}, Problems: problems},
		},
	}
}

// A configuration for all nodes with which the device plugin would not start does not replace what runs.
func TestABrokenConfigurationIsRefused(t *testing.T) {
	o := operand.Operand{Name: "device-plugin", References: func(in operand.Input) []operand.Use {
		use := operand.ConfigMapUse("spec.devicePlugin.config.name", in.Spec.DevicePlugin.Config.Name)
		use.Configures = true
		return []operand.Use{use}
	}}
	const refusal = "spec.devicePlugin.config.name: ConfigMap configs, key four, line 6: " +
		"replicas is 1: it must be a number from 2"
	tests := map[string]struct {
		common   string
		problems map[string][]pluginfile.Problem
		// content replaces that of the ConfigMap.
		content *operand.Content
		want    string
	}{
		"all can be read": {common: "four"},
		"without a key": {content: &operand.Content{}, want: "spec.devicePlugin.config.name: ConfigMap configs in " +
			"namespace gpus has no keys: add one with a configuration"},
		"not read": {content: &operand.Content{Assumed: true}},
		"the common one is broken": {
			common: "four", problems: map[string][]pluginfile.Problem{"four": {broken}}, want: refusal,
		},
		"another one is broken": {common: "four", problems: map[string][]pluginfile.Problem{"two": {broken}}},
		"a part is ignored":     {common: "four", problems: map[string][]pluginfile.Problem{"four": {ignored}}},
		"ignored first, then broken": {
			common: "four", problems: map[string][]pluginfile.Problem{"four": {ignored, broken}}, want: refusal,
		},
		"no configuration is for all":     {problems: map[string][]pluginfile.Problem{"four": {broken}}},
		"the common one is not a problem": {common: "two", problems: map[string][]pluginfile.Problem{"none": {broken}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			in, want := configured(test.common, test.problems), operand.Accept()
			if test.want != "" {
				want = operand.Refuse(v1.ReasonPluginConfigInvalid, test.want)
			}
			if test.content != nil {
				in.Contents[configs] = *test.content
				if test.want != "" {
					want.Reason = v1.ReasonReferenceMissing
				}
				if _, problem := in.DefaultPluginConfig(); problem != "" {
					t.Errorf("no key is the common one: %s", problem)
				}
			}
			if diff := cmp.Diff(want, in.CheckReferences(&o)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// What is ignored is reported for all configurations; what breaks one, for those that only labels select.
func TestPluginConfigNotes(t *testing.T) {
	const prefix = "spec.devicePlugin.config.name: ConfigMap configs, key "
	in := configured("four", map[string][]pluginfile.Problem{"four": {ignored, broken}, "two": {broken}})
	want := []string{
		prefix + "four, line 3: sharing.mig is ignored: set spec.mig.strategy",
		prefix + "two, line 6: replicas is 1: it must be a number from 2",
	}
	if diff := cmp.Diff(want, in.PluginConfigNotes()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Parts that only the plugin's own discovery reads are ignored without it, and MPS cannot be beside the strategy mixed.
func TestPluginConfigNotesFollowTheSpec(t *testing.T) {
	const prefix = "spec.devicePlugin.config.name: ConfigMap configs, key two, line "
	own := []pluginfile.Problem{{Line: 1, OwnDiscovery: true, Message: "is ignored"}}
	for name, test := range map[string]struct {
		discovery v1.DiscoveryMode
		strategy  v1.MIGStrategy
		want      []string
	}{
		"neither": {want: []string{prefix + "1: is ignored"}},
		"NFD":     {discovery: v1.DiscoveryNFD},
		"mixed": {strategy: v1.MIGStrategyMixed, want: []string{
			prefix + "1: is ignored", prefix + "5: sharing.mps cannot share GPUs with the MIG strategy mixed: use timeSlicing",
		}},
		"single": {discovery: v1.DiscoveryNFD, strategy: v1.MIGStrategySingle, want: []string{
			prefix + "3: flags.migStrategy none has no effect: mig.strategy is single. Remove one of them, or set " +
				"mig.strategy of the nodes' pool in spec.nodePools",
		}},
	} {
		in := configured("four", map[string][]pluginfile.Problem{"two": own})
		in.Spec.NodeDiscovery.Mode, in.Spec.MIG = test.discovery, &v1.MIGSpec{Strategy: test.strategy}
		content := in.Contents[configs]
		content.MPSLines = map[string]int{"two": 5}
		if test.strategy == v1.MIGStrategySingle {
			content.Strategies = map[string]pluginfile.Strategy{"two": {Value: "none", Line: 3}}
		}
		in.Contents[configs] = content
		if diff := cmp.Diff(test.want, in.PluginConfigNotes()); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
	in := configured("two", map[string][]pluginfile.Problem{"two": {broken}})
	if got := in.PluginConfigFor("two"); got != (operand.NodePluginConfig{Source: "configs/two", Broken: true}) {
		t.Errorf("got %+v", got)
	}
}

// A text without a key of the format may be something else: only the configuration that is read is reported.
func TestNotesOnATextWithoutAnyKey(t *testing.T) {
	unlike := []pluginfile.Problem{{Line: 1, Unlike: true, Message: "shareing is ignored: use sharing"}}
	for common, want := range map[string][]string{
		"four": {"spec.devicePlugin.config.name: ConfigMap configs, key four, line 1: shareing is ignored: use sharing"},
		"none": nil,
	} {
		in := configured(common, map[string][]pluginfile.Problem{"four": unlike})
		if diff := cmp.Diff(want, in.PluginConfigNotes()); diff != "" {
			t.Errorf("%s: -want +got:\n%s", common, diff)
		}
	}
}

func TestCheckPluginConfig(t *testing.T) {
	in := configured("four", map[string][]pluginfile.Problem{"two": {ignored, broken}})
	shared := operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{Sharing: &v1.SharingSpec{}})}
	const label = "label nvidia.com/device-plugin.config="
	strategy := func(ofSpec v1.MIGStrategy, common string) operand.Input {
		in := configured(common, nil)
		in.Spec.MIG = &v1.MIGSpec{Strategy: ofSpec}
		content := in.Contents[configs]
		content.Strategies = map[string]pluginfile.Strategy{"two": {Value: "mixed", Line: 3}}
		in.Contents[configs] = content
		return in
	}
	const overridden = "ConfigMap configs, key two, line 3: flags.migStrategy mixed has no effect: mig.strategy is " +
		"single. Remove one of them, or set mig.strategy of the nodes' pool in spec.nodePools"
	unread, empty := configured("four", nil), configured("", nil)
	unread.Contents = nil
	empty.Contents[configs] = operand.Content{}
	for name, test := range map[string]struct {
		in          operand.Input
		label, want string
		// noted: the plugin starts.
		noted bool
	}{
		"no label": {in: in},
		"a key":    {in: in, label: "none"},
		"no key": {
			in: in, label: "eight", want: label + "eight: ConfigMap configs has no such key, only four, none, two",
		},
		"no keys": {in: empty, label: "eight", want: label + "eight: ConfigMap configs has no keys"},
		"a broken one": {
			in: in, label: "two", want: label + "two: ConfigMap configs, line 6: replicas is 1: it must be a number from 2",
		},
		"one that may be something else": {
			in: configured("four", map[string][]pluginfile.Problem{
				"two": {{Line: 1, Unlike: true, Message: "shareing is ignored: use sharing"}},
			}), label: "two", want: label + "two: ConfigMap configs, line 1: shareing is ignored: use sharing", noted: true,
		},
		"with spec.sharing": {
			in: shared, label: "two", want: label + "two has no effect with spec.sharing: use spec.nodePools",
		},
		"another MIG strategy in the spec":            {in: strategy("single", "four"), label: "two", want: overridden},
		"another MIG strategy, for all nodes":         {in: strategy("single", "two"), want: overridden},
		"the same MIG strategy":                       {in: strategy("mixed", "two")},
		"no MIG strategy in the spec":                 {in: strategy("", "two")},
		"the strategy of a configuration of no label": {in: strategy("single", "two"), label: "four"},
		"contents not read":                           {in: unread, label: "eight"},
		"without configurations": {
			in: operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{})}, label: "two",
			want: label + "two has no effect: set spec.devicePlugin.config.name",
		},
		"with another device plugin": {
			in: operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{
				DevicePlugin: &v1.DevicePluginSpec{Enabled: new(false)},
			})},
			label: "two",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := test.in.CheckPluginConfig(test.label)
			isFatal := strings.HasPrefix(test.want, label) && test.in.Spec.DevicePlugin.Config.Name != "" && !test.noted
			if got.Message != test.want || got.Fatal != isFatal {
				t.Errorf("got %+v, want %q", got, test.want)
			}
		})
	}
}

// Nodes without the label get the key of the spec, the only one, or that of NVIDIA's documentation.
func TestCommonPluginConfig(t *testing.T) {
	for name, test := range map[string]struct {
		common, label string
		keys          []string
		sharing, off  bool
		key, source   string
		problem       bool
	}{
		"of the spec":  {common: "a", keys: []string{"a", "b"}, key: "a", source: "configs/a"},
		"the only one": {keys: []string{"b"}, key: "b", source: "configs/b"},
		"the usual":    {keys: []string{"a", "any"}, key: "any", source: "configs/any"},
		"none":         {keys: []string{"a", "b"}, problem: true},
		"by the label": {keys: []string{"a", "b"}, label: "b", source: "configs/b", problem: true},
		"sharing":      {common: "a", keys: []string{"a"}, key: "a", sharing: true},
		"no plugin":    {common: "a", keys: []string{"a"}, key: "a", off: true},
	} {
		in := configured(test.common, nil)
		in.Contents[configs] = operand.Content{Keys: test.keys, KeyDigests: map[string]string{"a": "da", "b": "db"}}
		if test.sharing {
			in.Spec.Sharing = &v1.SharingSpec{}
		}
		*in.Spec.DevicePlugin.Enabled = !test.off
		if key, problem := in.DefaultPluginConfig(); key != test.key || (problem != "") != test.problem {
			t.Errorf("%s: got %q, %q", name, key, problem)
		}
		got := in.PluginConfigFor(test.label)
		digest := map[string]string{"configs/a": "da", "configs/b": "db"}[test.source]
		if got != (operand.NodePluginConfig{Source: test.source, Digest: digest}) {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}
