package operand_test

import (
	"testing"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
)

func TestCheckMIGLayout(t *testing.T) {
	named := v1.ClusterPolicySpec{MIGManager: &v1.MIGManagerSpec{Config: &v1.MIGManagerConfigSpec{Name: "layouts"}}}
	reference := operand.Reference{Kind: operand.ConfigMap, Name: "layouts"}
	for name, test := range map[string]struct {
		spec         v1.ClusterPolicySpec
		content      operand.Content
		layout, want string
	}{
		"a layout of the ConfigMap": {spec: named, content: operand.Content{Layouts: []string{"halves"}}, layout: "halves"},
		"another one": {
			spec: named, content: operand.Content{Layouts: []string{"all-disabled", "halves"}}, layout: "thirds",
			want: "MIG layout thirds is unknown: ConfigMap layouts has only all-disabled, halves",
		},
		"a ConfigMap whose layouts cannot be read": {spec: named, layout: "thirds"},
		"generated layouts":                        {content: operand.Content{Layouts: []string{"halves"}}, layout: "thirds"},
		"no layout":                                {spec: named, content: operand.Content{Layouts: []string{"halves"}}},
	} {
		t.Run(name, func(t *testing.T) {
			in := operand.Input{
				Spec: effective.Of(test.spec), Contents: map[operand.Reference]operand.Content{reference: test.content},
			}
			if got := in.CheckMIGLayout(test.layout); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
