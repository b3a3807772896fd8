package fieldnotes_test

import (
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/fieldnotes"
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
