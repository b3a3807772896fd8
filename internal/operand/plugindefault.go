package operand

import (
	"fmt"
	"slices"
	"strings"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// commonPluginConfigs are the keys that NVIDIA's documentation gives to the configuration for all nodes.
var commonPluginConfigs = []string{"default", "any"}

// DefaultPluginConfig returns the key of the device plugin's configuration for nodes that select none by their label:
// that of the spec, else the only key of the ConfigMap, else default or any. If none of these exists it is empty, and
// problem describes what that means for the nodes; a ConfigMap without keys is refused, see CheckReferences.
func (in Input) DefaultPluginConfig() (key, problem string) {
	config := in.Spec.DevicePlugin.Config
	content, known := in.Contents[Reference{ConfigMap, config.Name}]
	if config.Default != "" || config.Name == "" || !known || content.Assumed || len(content.Keys) == 0 {
		return config.Default, ""
	}
	if len(content.Keys) == 1 {
		return content.Keys[0], ""
	}
	for _, key := range commonPluginConfigs {
		if slices.Contains(content.Keys, key) {
			return key, ""
		}
	}
	return "", fmt.Sprintf("spec.devicePlugin.config.default: is not set, and none of the %d keys of ConfigMap %s is %s: "+
		"nodes without the label %s get an empty configuration. Set it to one of the keys",
		len(content.Keys), config.Name, strings.Join(commonPluginConfigs, " or "), labels.DevicePluginConfig)
}
