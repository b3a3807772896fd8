package plan_test

import (
	"slices"
	"testing"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
)

// A MIG layout that nothing on the node will apply is noted, with what keeps the MIG manager off.
func TestNotesOnMIGLayouts(t *testing.T) {
	const begin = `label nvidia.com/mig.config is "all-1g.10gb", which has no effect: `
	const unknown = ", so that nothing reports whether its GPUs support MIG"
	withoutGFD := v1.ClusterPolicySpec{GFD: &v1.GFDSpec{Enabled: new(false)}}
	selected := v1.ClusterPolicySpec{GFD: &v1.GFDSpec{
		PlacementSpec: v1.PlacementSpec{NodeSelector: v1.Labels{"team": "a"}},
	}}
	optedOut := map[string]string{"gpu-feature-discovery": "false"}
	for name, test := range map[string]struct {
		spec            v1.ClusterPolicySpec
		capable, layout string
		product         string
		deploy          map[string]string
		want            string
	}{
		"GPUs that support it": {capable: "true", layout: "all-1g.10gb"},
		"GPUs that do not":     {capable: "false", layout: "all-1g.10gb", want: begin + "its GPUs do not support MIG"},
		"not known yet":        {layout: "all-1g.10gb"},
		"GFD is off": {spec: withoutGFD, layout: "all-1g.10gb",
			want: begin + "spec.gfd.enabled is false" + unknown},
		"GFD is off, the GPUs are known by a label of the user": {
			spec: withoutGFD, capable: "true", layout: "all-1g.10gb",
		},
		"GFD is off, the model is known": {spec: withoutGFD, product: "NVIDIA-H100-80GB-HBM3", layout: "all-1g.10gb"},
		"GFD is kept off the node": {layout: "all-1g.10gb", deploy: optedOut,
			want: begin + `label nvidia.com/gpu.deploy.gpu-feature-discovery is "false"` + unknown},
		"GFD is not selected": {spec: selected, layout: "all-1g.10gb",
			want: begin + "spec.gfd.nodeSelector requires label team=a" + unknown},
		"no layout":                {spec: withoutGFD},
		"what the node has anyway": {spec: withoutGFD, layout: "all-disabled"},
	} {
		t.Run(name, func(t *testing.T) {
			facts := changed(ubuntu("a"), func(f *nodeinfo.Facts) {
				f.MIGCapable, f.Product, f.Deploy = test.capable, test.product, test.deploy
				f.Labels = map[string]string{migConfig: test.layout}
			})
			var want []string
			if test.want != "" {
				want = []string{test.want}
			}
			if got := decide(t, test.spec).ForNode(facts).LabelNotes; !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}
