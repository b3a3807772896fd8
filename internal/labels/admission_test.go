package labels_test

import (
	"os"
	"strings"
	"testing"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
)

// The admission policy says in CEL what gpu-node discover may write; both must say the same.
func TestTheAdmissionPolicyAllowsWhatDiscoveryWrites(t *testing.T) {
	policy, err := os.ReadFile("../../config/admission/node_discovery.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, fact := range []string{
		"key.startsWith('" + labels.DiscoveryPrefix + "')",
		"key.matches('" + labels.FeaturePattern + "')",
		"key != '" + labels.Discovered + "'",
	} {
		if !strings.Contains(string(policy), fact) {
			t.Errorf("the policy does not have %s", fact)
		}
	}
}
