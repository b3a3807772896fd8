package fieldnotes_test

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/policy/fieldnotes"
)

// GPUDirect Storage needs open modules on the nodes that have it, whether the spec or a node pool enables it.
func TestStorageWithProprietaryModules(t *testing.T) {
	const proprietary = "kernelModuleType: proprietary"
	const pool = "nodePools: [{name: a, nodeSelector: {team: a}, driver: "
	for name, test := range map[string]struct {
		spec     string
		doubtful bool
	}{
		"spec":                   {"{gds: {enabled: true}, driver: {kernelModuleType: proprietary}}", true},
		"old nvidia-fs":          {"{gds: {enabled: true, version: 2.17.3}, driver: {" + proprietary + "}}", false},
		"modules of a node pool": {"{gds: {enabled: true}, " + pool + "{kernelModuleType: proprietary}}]}", true},
		"both of a node pool":    {"{" + pool + "{kernelModuleType: proprietary, gds: {enabled: true}}}]}", true},
		"storage of a node pool": {"{driver: {kernelModuleType: proprietary}, " + pool + "{gds: {enabled: true}}}]}", true},
		"off in the node pool": {
			"{gds: {enabled: true}, " + pool + "{" + proprietary + ", gds: {enabled: false}}}]}", false,
		},
		"an old one in the pool":  {"{" + pool + "{" + proprietary + ", gds: {enabled: true, version: 2.16.1}}}]}", false},
		"open in the node pool":   {"{" + pool + "{kernelModuleType: open, gds: {enabled: true}}}]}", false},
		"proprietary without GDS": {"{" + pool + "{kernelModuleType: proprietary}}]}", false},
	} {
		t.Run(name, func(t *testing.T) {
			spec := v1.ClusterPolicySpec{}
			if err := yaml.UnmarshalStrict([]byte(test.spec), &spec); err != nil {
				t.Fatal(err)
			}
			found := slices.ContainsFunc(fieldnotes.Doubtful(spec), func(note string) bool {
				return strings.HasPrefix(note, "spec.driver.kernelModuleType")
			})
			if found != test.doubtful {
				t.Errorf("reported: %v, want %v", found, test.doubtful)
			}
		})
	}
}

// A text that is no number, which an earlier definition has admitted, is reported with what it counts as.
func TestTextsThatAreNoNumbers(t *testing.T) {
	const remedy = ": set a number such as 2, or a percentage such as 25%"
	const neither = " is neither a number of at most 9 digits nor a percentage, and "
	for text, want := range map[string]string{
		"99999999999":           `"99999999999"` + neither + "it counts as 2147483647" + remedy,
		"99999999999999999999%": `"99999999999999999999%"` + neither + "it counts as 100%" + remedy,
		"many":                  `"many"` + neither + "the default applies" + remedy,
		"2":                     "", "1000%": "", "": "", "25%": "",
	} {
		value := intstr.FromString(text)
		notes := fieldnotes.Doubtful(v1.ClusterPolicySpec{
			DaemonSets: &v1.DaemonSetsSpec{RollingUpdate: &v1.RollingUpdateSpec{MaxUnavailable: &value}},
			Health:     &v1.HealthSpec{MinUsable: &value, Actions: &v1.HealthActionsSpec{MaxNodes: &value}},
			Driver:     &v1.DriverSpec{UpgradePolicy: &v1.DriverUpgradePolicySpec{MaxUnavailable: &value}},
			NodePools: []v1.NodePoolSpec{{Driver: &v1.NodePoolDriverSpec{
				UpgradePolicy: &v1.NodePoolUpgradePolicySpec{MaxUnavailable: &value},
			}}},
		})
		var wanted []string
		for _, field := range []string{
			"spec.driver.upgradePolicy.maxUnavailable", "spec.daemonsets.rollingUpdate.maxUnavailable",
			"spec.health.minUsable", "spec.health.actions.maxNodes", "spec.nodePools[0].driver.upgradePolicy.maxUnavailable",
		} {
			if want != "" {
				wanted = append(wanted, field+": "+want)
			}
		}
		slices.Sort(wanted)
		slices.Sort(notes)
		if !slices.Equal(notes, wanted) {
			t.Errorf("%q: notes %q, want %q", text, notes, wanted)
		}
	}
}
