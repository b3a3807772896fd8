package nodestatusexporter_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/nodestatusexporter"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
)

const own = "ghcr.io/clusterpolicy/gpu-operator:v1"

// The helper image is used, unless the block names another image.
func TestImage(t *testing.T) {
	helper := &v1.ValidatorSpec{ImageSpec: v1.ImageSpec{Image: "example.com/helper:v2", ImagePullPolicy: "Always"}}
	tests := map[string]struct {
		validator     *v1.ValidatorSpec
		image         v1.ImageSpec
		want, version string
		err           string
	}{
		"the operator's image": {want: own, version: "v1"},
		"the helper image":     {validator: helper, want: "example.com/helper:v2", version: "v2"},
		"its own": {
			validator: helper,
			image:     v1.ImageSpec{Image: "example.com/own:v3"},
			want:      "example.com/own:v3",
			version:   "v3",
		},
		"only a version": {
			image:   v1.ImageSpec{Version: "v4"},
			want:    "ghcr.io/clusterpolicy/gpu-operator:v4",
			version: "v4",
		},
		"NVIDIA's operator image means the helper image": {
			validator: helper,
			image:     v1.ImageSpec{Repository: "nvcr.io/nvidia", Image: "gpu-operator", Version: "v26.7.0"},
			want:      "example.com/helper:v2",
			version:   "v2",
		},
		"a contradiction": {
			image: v1.ImageSpec{Image: "example.com/own:v3", Version: "v4"},
			err:   `spec.nodeStatusExporter: image "example.com/own:v3" is a full reference: remove repository and version`,
		},
		"a contradiction in the helper image": {
			validator: &v1.ValidatorSpec{ImageSpec: v1.ImageSpec{Image: "example.com/helper:v2", Version: "v4"}},
			err:       `spec.validator: image "example.com/helper:v2" is a full reference: remove repository and version`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := instances(test.validator, v1.NodeStatusExporterSpec{ImageSpec: test.image})
			if text(err) != test.err {
				t.Fatalf("got error %q, want %q", text(err), test.err)
			}
			if err == nil && (got[0].Image != test.want || got[0].Version != test.version) {
				t.Errorf("got %s, %s, want %s, %s", got[0].Image, got[0].Version, test.want, test.version)
			}
		})
	}
}

func TestPullPolicy(t *testing.T) {
	tests := map[string]struct {
		all, own v1.ImageSpec
		want     string
	}{
		"the default":      {want: "IfNotPresent"},
		"the helper image": {all: v1.ImageSpec{ImagePullPolicy: "Always"}, want: "Always"},
		"its own": {
			all:  v1.ImageSpec{ImagePullPolicy: "Always"},
			own:  v1.ImageSpec{ImagePullPolicy: "Never"},
			want: "Never",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := instances(&v1.ValidatorSpec{ImageSpec: test.all}, v1.NodeStatusExporterSpec{ImageSpec: test.own})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, nodestatusexporter.PullPolicy(got[0])); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestPort(t *testing.T) {
	tests := map[string]struct {
		env  []v1.EnvVar
		want int
		err  string
	}{
		"the default":    {env: []v1.EnvVar{{Name: "X", Value: "1"}}, want: 8000},
		"an empty value": {env: []v1.EnvVar{{Name: "METRICS_PORT"}}, want: 8000},
		"another":        {env: []v1.EnvVar{{Name: "METRICS_PORT", Value: "8010"}}, want: 8010},
		"not a number": {
			env: []v1.EnvVar{{Name: "METRICS_PORT", Value: ":8010"}},
			err: `spec.nodeStatusExporter.env: METRICS_PORT is ":8010": it must be a number from 1 to 65535`,
		},
		"any": {
			env: []v1.EnvVar{{Name: "METRICS_PORT", Value: "0"}},
			err: `spec.nodeStatusExporter.env: METRICS_PORT is "0": it must be a number from 1 to 65535`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := instances(nil, v1.NodeStatusExporterSpec{ContainerSpec: v1.ContainerSpec{Env: test.env}})
			if text(err) != test.err {
				t.Fatalf("got error %q, want %q", text(err), test.err)
			}
			if err == nil && nodestatusexporter.Port(got[0]) != test.want {
				t.Errorf("got %d, want %d", nodestatusexporter.Port(got[0]), test.want)
			}
		})
	}
}

func instances(validator *v1.ValidatorSpec, spec v1.NodeStatusExporterSpec) ([]operand.Instance, error) {
	in := operand.Input{
		OperatorImage: own,
		Spec:          effective.Of(v1.ClusterPolicySpec{Validator: validator, NodeStatusExporter: &spec}),
	}
	return nodestatusexporter.Operand().Instances(in, nil)
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
