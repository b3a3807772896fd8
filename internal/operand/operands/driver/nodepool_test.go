package driver_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/driver"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
)

// inputOf is the input for the nodes of a node pool with this driver.
func inputOf(spec v1.ClusterPolicySpec, own v1.NodePoolDriverSpec) operand.Input {
	spec.NodePools = []v1.NodePoolSpec{{Name: "a", NodeSelector: v1.NodePoolSelector{"team": "a"}, Driver: &own}}
	in := operand.Input{Spec: effective.Of(spec)}
	return in.ForNodePool(operand.NodePools(in.Spec)[0])
}

func resources(request, limit string) *v1.ResourceRequirements {
	return &v1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(request)},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(limit)},
	}
}

// What the API server refuses in spec.driver is refused for a node pool; messages name the field that has the value.
func TestNodePoolsThatAreRefused(t *testing.T) {
	const pool = "spec.nodePools[].driver."
	branch := v1.ImageSpec{Version: "595"}
	gds := v1.ClusterPolicySpec{GDS: &v1.GDSSpec{Enabled: new(true)}}
	env := []v1.EnvVar{{Name: "GDS_ENABLED", Value: "true"}}
	tests := map[string]struct {
		spec   v1.ClusterPolicySpec
		driver v1.NodePoolDriverSpec
		want   string
	}{
		"requests above limits": {
			driver: v1.NodePoolDriverSpec{Resources: resources("1Gi", "1000Mi")},
			want:   pool + "resources.requests[memory]: 1Gi exceeds the limit of 1000Mi: lower it, or raise the limit",
		},
		"requests equal to limits": {driver: v1.NodePoolDriverSpec{Resources: resources("1Gi", "1024Mi")}},
		"requests without limits": {driver: v1.NodePoolDriverSpec{Resources: &v1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
		}}},
		"a start-up probe that must succeed twice": {
			driver: v1.NodePoolDriverSpec{StartupProbe: &v1.ProbeSpec{SuccessThreshold: 2}},
			want:   pool + "startupProbe.successThreshold: must be 1, unless in a readiness probe",
		},
		"a liveness probe that must succeed twice": {
			driver: v1.NodePoolDriverSpec{LivenessProbe: &v1.ProbeSpec{SuccessThreshold: 2}},
			want:   pool + "livenessProbe.successThreshold: must be 1, unless in a readiness probe",
		},
		"a readiness probe that must succeed twice": {
			driver: v1.NodePoolDriverSpec{ReadinessProbe: &v1.ProbeSpec{SuccessThreshold: 2}},
		},
		"a toleration without a key": {
			driver: v1.NodePoolDriverSpec{Tolerations: []corev1.Toleration{{Key: "a"}, {Value: "b"}}},
			want:   pool + "tolerations[1].operator: must be Exists if key is empty",
		},
		"a toleration of any value, with a value": {
			driver: v1.NodePoolDriverSpec{Tolerations: []corev1.Toleration{
				{Key: "a", Operator: corev1.TolerationOpExists, Value: "b"},
			}},
			want: pool + "tolerations[0].value: must be empty if operator is Exists",
		},
		"a toleration that ends, of no eviction": {
			driver: v1.NodePoolDriverSpec{Tolerations: []corev1.Toleration{
				{Key: "a", Effect: corev1.TaintEffectNoSchedule, TolerationSeconds: new(int64(60))},
			}},
			want: pool + "tolerations[0].effect: must be NoExecute if tolerationSeconds is set",
		},
		"tolerations that end": {
			driver: v1.NodePoolDriverSpec{Tolerations: []corev1.Toleration{
				{Key: "a", Value: "b", Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(60))},
			}},
		},
		"a toleration of everything": {
			driver: v1.NodePoolDriverSpec{Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}},
		},
		"GPUDirect Storage of the spec": {
			gds, v1.NodePoolDriverSpec{UsePrecompiled: new(true), ImageSpec: branch},
			pool + "usePrecompiled: a precompiled driver cannot have GPUDirect Storage: remove this field or spec.gds.enabled",
		},
		"GPUDirect Storage of the spec, off in the node pool": {
			spec: gds, driver: v1.NodePoolDriverSpec{
				UsePrecompiled: new(true), ImageSpec: branch, GDS: &v1.NodePoolModuleSpec{Enabled: new(false)},
			},
		},
		"GPUDirect Storage of the node pool": {
			v1.ClusterPolicySpec{Driver: &v1.DriverSpec{UsePrecompiled: new(true), ImageSpec: branch}},
			v1.NodePoolDriverSpec{GDS: &v1.NodePoolModuleSpec{Enabled: new(true)}},
			"spec.driver.usePrecompiled: a precompiled driver cannot have GPUDirect Storage: remove this field or " +
				pool + "gds.enabled",
		},
		"GDRCopy of the node pool": {
			driver: v1.NodePoolDriverSpec{
				UsePrecompiled: new(true), ImageSpec: branch, GDRCopy: &v1.NodePoolModuleSpec{Enabled: new(true)},
			},
			want: pool + "usePrecompiled: a precompiled driver cannot have GDRCopy: remove this field or " +
				pool + "gdrcopy.enabled",
		},
		"a variable that contradicts the node pool": {
			driver: v1.NodePoolDriverSpec{Env: env, GDS: &v1.NodePoolModuleSpec{Enabled: new(false)}},
			want: pool + `env: GDS_ENABLED is "true", which contradicts ` + pool +
				"gds.enabled: remove the variable, and set the field instead",
		},
		"a variable that contradicts the spec": {
			driver: v1.NodePoolDriverSpec{Env: env},
			want: pool + `env: GDS_ENABLED is "true", which contradicts spec.gds.enabled: remove the variable, and ` +
				"set the field instead",
		},
		"a variable that agrees with the spec": {spec: gds, driver: v1.NodePoolDriverSpec{Env: env}},
		"a reserved variable of a sidecar": {
			driver: v1.NodePoolDriverSpec{
				GDRCopy: &v1.NodePoolModuleSpec{Env: []v1.EnvVar{{Name: "POD_UID", Value: "x"}}},
			},
			want: pool + "gdrcopy.env: POD_UID is reserved for the operator: remove it",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o, in := driver.Operand(), inputOf(test.spec, test.driver)
			decision := o.Decide(in)
			if decision.Choice == operand.Install {
				decision = in.CheckPods(&o)
			}
			if got := decision.Message; got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// Errors about images and missing objects name the node pool's field, too.
func TestMessagesNameTheFieldOfTheNodePool(t *testing.T) {
	o := driver.Operand()
	invalid := v1.ImageSpec{Repository: "a", Image: "b:c", Version: "1"}
	for want, own := range map[string]v1.NodePoolDriverSpec{
		"spec.nodePools[].driver: ":         {ImageSpec: invalid},
		"spec.nodePools[].driver.manager: ": {Manager: &v1.DriverManagerSpec{ImageSpec: invalid}},
		"spec.nodePools[].driver.gds: ":     {GDS: &v1.NodePoolModuleSpec{Enabled: new(true), ImageSpec: invalid}},
	} {
		_, err := o.Instances(inputOf(v1.ClusterPolicySpec{}, own), []nodeinfo.Pool{{Name: "a", OSTag: "ubuntu24.04"}})
		if err == nil || len(err.Error()) < len(want) || err.Error()[:len(want)] != want {
			t.Errorf("%s: got %v", want, err)
		}
	}
	for want, own := range map[string]v1.NodePoolDriverSpec{
		"spec.nodePools[].driver.secretEnv": {SecretEnv: "x"},
		"spec.nodePools[].driver.repoConfig.configMapName": {
			RepoConfig: &v1.DriverRepoConfigSpec{ConfigMapName: "x"},
		},
		"spec.nodePools[].driver.licensingConfig.secretName": {
			LicensingConfig: &v1.DriverLicensingConfigSpec{SecretName: "x"},
		},
		"spec.nodePools[].driver.priorityClassName": {PriorityClassName: "x"},
	} {
		in := inputOf(v1.ClusterPolicySpec{}, own)
		found := false
		for _, use := range o.UsesOf(in) {
			found = found || use.Name == "x" && use.Field == want
		}
		if !found {
			t.Errorf("%s: got %v", want, o.UsesOf(in))
		}
	}
}
