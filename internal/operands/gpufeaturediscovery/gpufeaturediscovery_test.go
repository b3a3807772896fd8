package gpufeaturediscovery_test

import (
	"slices"
	"testing"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/effective"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operands/gpufeaturediscovery"
)

// config-manager, which is added with a configuration, comes from the device plugin's image.
func TestPullSecretsAreThoseOfBothImages(t *testing.T) {
	spec := v1.ClusterPolicySpec{
		GFD:          &v1.GFDSpec{ImageSpec: v1.ImageSpec{ImagePullSecrets: []string{"gfd"}}},
		DevicePlugin: &v1.DevicePluginSpec{ImageSpec: v1.ImageSpec{ImagePullSecrets: []string{"plugin"}}},
	}
	tests := map[string]struct {
		config *v1.DevicePluginConfigSpec
		want   []string
	}{
		"its own alone":         {want: []string{"gfd"}},
		"with config-manager's": {config: &v1.DevicePluginConfigSpec{Name: "configs"}, want: []string{"gfd", "plugin"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			spec.DevicePlugin.Config = test.config
			got, err := gpufeaturediscovery.Operand().Instances(operand.Input{Spec: effective.Of(spec)}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got[0].PullSecrets, test.want) {
				t.Errorf("got %v, want %v", got[0].PullSecrets, test.want)
			}
		})
	}
}

func TestWrongImagesNameTheirField(t *testing.T) {
	wrong := v1.ImageSpec{Image: "example.com/x:1", Version: "2"}
	const what = `: image "example.com/x:1" is a full reference: remove repository and version`
	tests := map[string]struct {
		spec v1.ClusterPolicySpec
		want string
	}{
		"its own": {v1.ClusterPolicySpec{GFD: &v1.GFDSpec{ImageSpec: wrong}}, "spec.gfd" + what},
		"config-manager's": {
			v1.ClusterPolicySpec{
				DevicePlugin: &v1.DevicePluginSpec{ImageSpec: wrong, Config: &v1.DevicePluginConfigSpec{Name: "configs"}},
			},
			"spec.devicePlugin" + what,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := gpufeaturediscovery.Operand().Instances(operand.Input{Spec: effective.Of(test.spec)}, nil)
			if err == nil || err.Error() != test.want {
				t.Errorf("got error %v, want %q", err, test.want)
			}
		})
	}
}
