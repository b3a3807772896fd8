package mpscontroldaemon_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/mpscontroldaemon"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
)

func input(spec v1.DevicePluginSpec) operand.Input {
	return operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{DevicePlugin: &spec})}
}

func TestWanted(t *testing.T) {
	configs := &v1.DevicePluginConfigSpec{Name: "configs"}
	noConfig := operand.Decision{
		Choice: operand.Absent, Reason: v1.ReasonDisabledBySpec,
		Message: "neither spec.sharing.mps nor spec.devicePlugin.config.name is set: no configuration shares GPUs by MPS",
	}
	tests := map[string]struct {
		in   operand.Input
		want operand.Decision
	}{
		"no block":        {in: operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{})}, want: noConfig},
		"no name":         {in: input(v1.DevicePluginSpec{Config: &v1.DevicePluginConfigSpec{Default: "a"}}), want: noConfig},
		"a configuration": {in: input(v1.DevicePluginSpec{Config: configs})},
		"shared by MPS": {in: operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{
			Sharing: &v1.SharingSpec{MPS: &v1.MPSSharingSpec{Replicas: 4}},
		})}},
		"shared by time slices": {in: operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{
			Sharing: &v1.SharingSpec{TimeSlicing: &v1.TimeSlicingSpec{Replicas: 4}},
		})}, want: noConfig},
		"no plugin": {
			in: input(v1.DevicePluginSpec{Enabled: new(false), Config: configs}),
			want: operand.Decision{
				Choice:  operand.Absent,
				Reason:  v1.ReasonDisabledBySpec,
				Message: "spec.devicePlugin.enabled is false",
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, mpscontroldaemon.Operand().Decide(test.in)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// Where spec.sharing shares GPUs by MPS, the daemon needs no label, which GPU Feature Discovery may never write.
func TestNodesThatAreServed(t *testing.T) {
	shared := v1.ClusterPolicySpec{Sharing: &v1.SharingSpec{MPS: &v1.MPSSharingSpec{Replicas: 4}}}
	withoutGFD := v1.ClusterPolicySpec{Sharing: shared.Sharing, GFD: &v1.GFDSpec{Enabled: new(false)}}
	fromConfigMap := v1.ClusterPolicySpec{
		DevicePlugin: &v1.DevicePluginSpec{Config: &v1.DevicePluginConfigSpec{Name: "configs"}},
	}
	optedOut := map[string]string{"gpu-feature-discovery": "false"}
	hasDaemon := map[string]string{"mps-control-daemon": "true"}
	for name, test := range map[string]struct {
		spec   v1.ClusterPolicySpec
		label  string
		deploy map[string]string
		served bool
	}{
		"shared, labelled":                            {spec: shared, label: "true", served: true},
		"shared, not labelled yet":                    {spec: shared, served: true},
		"shared, but the GPUs cannot":                 {spec: shared, label: "false"},
		"shared, GFD is off":                          {spec: withoutGFD, served: true},
		"shared, GFD is off since it wrote false":     {spec: withoutGFD, label: "false", served: true},
		"shared, GFD is off on the node":              {spec: shared, deploy: optedOut, served: true},
		"shared, GFD is off on the node since false":  {spec: shared, label: "false", deploy: optedOut, served: true},
		"a ConfigMap, labelled":                       {spec: fromConfigMap, label: "true", served: true},
		"a ConfigMap, which may share nothing":        {spec: fromConfigMap},
		"a ConfigMap, not labelled for a moment":      {spec: fromConfigMap, deploy: hasDaemon, served: true},
		"no longer shared, never labelled":            {deploy: hasDaemon},
		"a ConfigMap that shares nothing, GFD is off": {spec: fromConfigMap, label: "false", deploy: optedOut},
	} {
		t.Run(name, func(t *testing.T) {
			got := mpscontroldaemon.Operand().ServesNode(operand.Input{Spec: effective.Of(test.spec)},
				nodeinfo.Facts{MPSCapable: test.label, Deploy: test.deploy})
			if served := got.Choice == operand.Install; served != test.served {
				t.Errorf("served: %t", served)
			}
		})
	}
}

// The block belongs to the plugin: the daemon uses its settings of pods, but not those of programs.
func TestTheDaemonTakesOnlyWhatIsAboutItsPods(t *testing.T) {
	resources := &v1.ResourceRequirements{Limits: corev1.ResourceList{"memory": resource.MustParse("64Mi")}}
	got, err := mpscontroldaemon.Operand().Instances(input(v1.DevicePluginSpec{
		ContainerSpec: v1.ContainerSpec{
			Args: []string{
				"--plugin",
			}, Env: []v1.EnvVar{{Name: "PLUGIN", Value: "1"}}, HostNetwork: new(true), Resources: resources,
		},
		Config: &v1.DevicePluginConfigSpec{Name: "configs"},
	}), nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(v1.ContainerSpec{Resources: resources, HostNetwork: new(true)}, got[0].Container); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestAWrongImageNamesItsField(t *testing.T) {
	in := input(v1.DevicePluginSpec{ImageSpec: v1.ImageSpec{Image: "example.com/x:1", Version: "2"}})
	_, err := mpscontroldaemon.Operand().Instances(in, nil)
	const want = `spec.devicePlugin: image "example.com/x:1" is a full reference: remove repository and version`
	if err == nil || err.Error() != want {
		t.Errorf("got error %v, want %q", err, want)
	}
}
