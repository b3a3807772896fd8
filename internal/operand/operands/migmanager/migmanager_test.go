package migmanager_test

import (
	"testing"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/migmanager"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
)

func TestServes(t *testing.T) {
	deployed := map[string]string{"mig-manager": "true"}
	tests := map[string]struct {
		facts nodeinfo.Facts
		want  operand.Choice
	}{
		"GFD reports capable":     {nodeinfo.Facts{MIGCapable: "true"}, operand.Install},
		"GFD reports not capable": {nodeinfo.Facts{MIGCapable: "false"}, operand.Absent},
		"GFD takes precedence over the name": {
			nodeinfo.Facts{MIGCapable: "false", Product: "NVIDIA-A100-SXM4-40GB"},
			operand.Absent,
		},
		"not capable any more":    {nodeinfo.Facts{MIGCapable: "false", Deploy: deployed}, operand.Absent},
		"no label":                {nodeinfo.Facts{}, operand.Absent},
		"no label any more":       {nodeinfo.Facts{Deploy: deployed}, operand.Install},
		"an H100 by its name":     {nodeinfo.Facts{Product: "NVIDIA-H100-80GB-HBM3"}, operand.Install},
		"an A100 by its name":     {nodeinfo.Facts{Product: "nvidia-a100-pcie-40gb"}, operand.Install},
		"an A30 by its name":      {nodeinfo.Facts{Product: "NVIDIA-A30"}, operand.Install},
		"another GPU by its name": {nodeinfo.Facts{Product: "Tesla-V100"}, operand.Absent},
		"a host with vGPUs": {
			nodeinfo.Facts{MIGCapable: "true", VGPUGuest: true, Deploy: deployed},
			operand.Absent,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := migmanager.Operand().Serves(test.facts); got.Choice != test.want {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestTheDefaultLayout(t *testing.T) {
	config := func(layout *string) *v1.MIGManagerSpec {
		return &v1.MIGManagerSpec{Config: &v1.MIGManagerConfigSpec{Default: layout}}
	}
	tests := map[string]struct {
		spec *v1.MIGManagerSpec
		want string
	}{
		"no block":        {},
		"an empty block":  {spec: &v1.MIGManagerSpec{}},
		"no default":      {spec: config(nil), want: "all-disabled"},
		"all-disabled":    {spec: config(new("all-disabled")), want: "all-disabled"},
		"a layout":        {spec: config(new("all-1g.10gb")), want: "all-1g.10gb"},
		"an empty string": {spec: config(new(""))},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := migmanager.Operand().Layout(operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{MIGManager: test.spec})})
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestAWrongImageNamesItsField(t *testing.T) {
	spec := v1.ClusterPolicySpec{
		MIGManager: &v1.MIGManagerSpec{ImageSpec: v1.ImageSpec{Image: "example.com/m:1", Version: "2"}},
	}
	_, err := migmanager.Operand().Instances(operand.Input{Spec: effective.Of(spec)}, nil)
	const want = `spec.migManager: image "example.com/m:1" is a full reference: remove repository and version`
	if err == nil || err.Error() != want {
		t.Errorf("got error %v, want %q", err, want)
	}
}
