package driver_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operands/driver"
)

var pools = []operand.Pool{
	{Name: "rhel9-amd64", OSTag: "rhel9", Nodes: 1}, {Name: "ubuntu24.04-amd64", OSTag: "ubuntu24.04", Nodes: 3},
}

func instances(t *testing.T, spec *v1.DriverSpec) []operand.Instance {
	t.Helper()
	got, err := driver.Operand().Instances(operand.Input{Spec: v1.ClusterPolicySpec{Driver: spec}}, pools)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestOneInstanceForEachPool(t *testing.T) {
	type view struct{ Suffix, Pool, Image, Version string }
	tests := map[string]struct {
		spec *v1.DriverSpec
		want []view
	}{
		"a tag carries the operating system": {
			want: []view{
				{"-rhel9-amd64", "rhel9-amd64", "nvcr.io/nvidia/driver:595.91.07-rhel9", "595.91.07-rhel9"},
				{"-ubuntu24.04-amd64", "ubuntu24.04-amd64", "nvcr.io/nvidia/driver:595.91.07-ubuntu24.04", "595.91.07-ubuntu24.04"},
			},
		},
		"a whole reference is the same for all pools": {
			spec: &v1.DriverSpec{ImageSpec: v1.ImageSpec{Image: "example.com/driver:1"}},
			want: []view{
				{"-rhel9-amd64", "rhel9-amd64", "example.com/driver:1", "1"},
				{"-ubuntu24.04-amd64", "ubuntu24.04-amd64", "example.com/driver:1", "1"},
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got []view
			for _, i := range instances(t, test.spec) {
				got = append(got, view{i.Suffix, i.Pool, i.Image, i.Version})
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestWrongImagesNameTheirField(t *testing.T) {
	contradiction := v1.ImageSpec{Image: "example.com/driver:1", Version: "2"}
	const what = `: image "example.com/driver:1" is a whole reference: remove repository and version`
	tests := map[string]struct {
		spec *v1.DriverSpec
		want string
	}{
		"the driver":  {&v1.DriverSpec{ImageSpec: contradiction}, "spec.driver" + what},
		"its manager": {&v1.DriverSpec{Manager: &v1.DriverManagerSpec{ImageSpec: contradiction}}, "spec.driver.manager" + what},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := driver.Operand().Instances(operand.Input{Spec: v1.ClusterPolicySpec{Driver: test.spec}}, pools)
			if err == nil || err.Error() != test.want {
				t.Errorf("got error %v, want %q", err, test.want)
			}
		})
	}
}

func TestServesOnlyNodesWhoseImageIsKnown(t *testing.T) {
	tests := map[string]struct {
		facts operand.NodeFacts
		want  operand.Decision
	}{
		"all facts": {facts: operand.NodeFacts{OSID: "ubuntu", OSVersion: "24.04", Architecture: "amd64"}},
		"facts lost, but labelled with a pool": {
			facts: operand.NodeFacts{Pool: "ubuntu24.04-amd64"},
		},
		"no facts": {
			want: operand.Decision{
				Verdict: operand.Invalid, Reason: v1.ReasonFactsMissing,
				Message: "no discovery labels for the operating system, which the driver image is chosen by",
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, driver.Operand().Serves(test.facts)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
