package labels_test

import (
	"os"
	"strings"
	"testing"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// The admission policies name in CEL what programs write on nodes; the keys are those of this package.
func TestAdmissionPoliciesAllowWhatIsWritten(t *testing.T) {
	for file, facts := range map[string][]string{
		"node_agents.yaml": {
			"key.startsWith('" + labels.DiscoveryPrefix + "')", "key.matches('" + labels.FeaturePattern + "')",
			"['" + labels.DiscoveredLabels + "', '" + labels.GPUsOnBus + "']", "['" + labels.GPUHealth + "']",
			"'" + labels.DeployPrefix + "' + name", "key.startsWith('" + labels.MIGConfig + "')",
			"key.startsWith('" + labels.DeployPrefix + "')",
		},
		"operator.yaml": {
			"'" + labels.GPUPresent + "'", "'" + labels.MIGConfig + "'", "key.startsWith('" + labels.DeployPrefix + "')",
			"key.startsWith('" + prefixOf(t, labels.Pool, labels.PoolKernel, labels.PoolCoreOS, labels.PoolNodePool,
				labels.NodePool, labels.Layout, labels.DiscoveryLostSince, labels.DiscoveryMissingSince, labels.DiscoveredLabels,
				labels.StartupTaints, labels.MIGConfigWritten, labels.GPUsOnBus, labels.GPUHealth,
				labels.PluginConfigRead, labels.ReadyBoot, labels.ReportRecord) + "')",
			"'" + labels.MIGConfigState + "'", "[?'" + labels.MIGConfigWritten + "']",
			"key.startsWith('" + labels.AnchorPrefix + "')",
			"key.startsWith('" + labels.DiscoveryPrefix + "')", "key.matches('" + labels.FeaturePattern + "')",
			"[?'" + labels.DiscoveredLabels + "']",
			"type in ['" + strings.Join(labels.Conditions(), "', '") + "']", "['" + labels.TaintNotReady + "', '" +
				labels.TaintUnhealthy + "']",
		},
	} {
		policy, err := os.ReadFile("../../../config/admission/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, fact := range facts {
			if !strings.Contains(string(policy), fact) {
				t.Errorf("%s does not have %s", file, fact)
			}
		}
	}
}

// The operator gets the binding of one admission policy by name, and may read no other.
func TestTheFenceHasOneName(t *testing.T) {
	const name = labels.AgentPolicyBinding
	for file, fact := range map[string]string{
		"../../../config/admission/node_agents.yaml": "kind: ValidatingAdmissionPolicyBinding\nmetadata:\n  name: " + name +
			"\nspec:\n  policyName: " + name + "\n",
		"../../../config/rbac/role.yaml": "  resourceNames:\n  - " + name +
			"\n  resources:\n  - validatingadmissionpolicybindings\n",
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), fact) {
			t.Errorf("%s does not have %s", file, fact)
		}
	}
}

// prefixOf returns the prefix of the operator's own keys, which all of these must have.
func prefixOf(t *testing.T, keys ...string) string {
	t.Helper()
	const own = "nvidia.com/gpu-operator."
	for _, key := range keys {
		if !strings.HasPrefix(key, own) {
			t.Errorf("%s does not begin with %s, which the operator may write", key, own)
		}
	}
	return own
}
