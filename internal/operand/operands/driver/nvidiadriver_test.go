package driver_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/driver"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/nvidiadriver"
)

func TestADriverThatIsLeftToNVIDIADriversIsRefused(t *testing.T) {
	refused := operand.Refuse(v1.ReasonNotSupportedYet,
		"spec.driver.useNvidiaDriverCRD: no NVIDIADriver was read: add them to the file of the policy")
	for name, test := range map[string]struct {
		spec v1.DriverSpec
		want operand.Decision
	}{
		"enabled":  {v1.DriverSpec{UseNvidiaDriverCRD: new(true)}, refused},
		"disabled": {v1.DriverSpec{UseNvidiaDriverCRD: new(false)}, operand.Accept()},
		"without a driver": {
			v1.DriverSpec{UseNvidiaDriverCRD: new(true), Enabled: new(false)}, operand.Disabled("spec.driver.enabled"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := driver.Operand().Decide(operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{Driver: &test.spec})})
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestNVIDIADriversThatCannotBeRead(t *testing.T) {
	got := driver.Operand().Decide(operand.Input{
		Spec:                effective.Of(v1.ClusterPolicySpec{Driver: &v1.DriverSpec{UseNvidiaDriverCRD: new(true)}}),
		NVIDIADriversUnread: "the cluster has no CRD nvidiadrivers.nvidia.com: install it",
	})
	want := operand.Refuse(v1.ReasonInvalidSpec, "spec.driver.useNvidiaDriverCRD: "+
		"the cluster has no CRD nvidiadrivers.nvidia.com: install it, or set it to false")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Messages about an object name its own fields, not those of a policy or a node pool.
func TestMessagesNameTheFieldsOfNVIDIADrivers(t *testing.T) {
	policy := v1.ClusterPolicySpec{Driver: &v1.DriverSpec{UseNvidiaDriverCRD: new(true)}}
	for want, spec := range map[string]v1alpha1.NVIDIADriverSpec{
		"spec.usePrecompiled: set spec.version to a driver branch, such as 595": {UsePrecompiled: new(true)},
		"spec.usePrecompiled: a precompiled driver cannot have GPUDirect Storage: remove this field or spec.gds.enabled": {
			UsePrecompiled: new(true), ImageSpec: v1.ImageSpec{Version: "595"}, GDS: &v1.GDSSpec{Enabled: new(true)},
		},
		"spec.env: GDS_ENABLED is \"true\", which contradicts spec.gds.enabled: " +
			"remove the variable, and set the field instead": {
			ContainerSpec: v1.ContainerSpec{Env: []v1.EnvVar{{Name: "GDS_ENABLED", Value: "true"}}},
		},
		"spec.gdrcopy.env: POD_UID is reserved for the operator: remove it": {
			GDRCopy: &v1.GDRCopySpec{Env: []v1.EnvVar{{Name: "POD_UID", Value: "x"}}},
		},
	} {
		if got := driver.Operand().Decide(inputOfObject(policy, spec)).Message; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// The objects that the driver of an NVIDIADriver refers to are named with its fields.
func TestReferencesNameTheFieldsOfNVIDIADrivers(t *testing.T) {
	in := inputOfObject(v1.ClusterPolicySpec{Driver: &v1.DriverSpec{UseNvidiaDriverCRD: new(true)}},
		v1alpha1.NVIDIADriverSpec{
			SecretEnv: "a", RepoConfig: &v1alpha1.ConfigMapSpec{Name: "b"}, CertConfig: &v1alpha1.ConfigMapSpec{Name: "c"},
			LicensingConfig:       &v1alpha1.LicensingConfigSpec{Name: "d"},
			VirtualTopologyConfig: &v1alpha1.ConfigMapSpec{Name: "e"}, KernelModuleConfig: &v1alpha1.ConfigMapSpec{Name: "f"},
		})
	got := map[string]string{}
	for _, use := range driver.Operand().References(in) {
		got[use.Name] = use.Field
	}
	want := map[string]string{
		"a": "spec.secretEnv", "b": "spec.repoConfig.name", "c": "spec.certConfig.name", "d": "spec.licensingConfig.name",
		"e": "spec.virtualTopologyConfig.name", "f": "spec.kernelModuleConfig.name",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// inputOfObject is the input for the nodes of an NVIDIADriver with this spec.
func inputOfObject(policy v1.ClusterPolicySpec, spec v1alpha1.NVIDIADriverSpec) operand.Input {
	in := operand.Input{
		Spec: effective.Of(policy), NVIDIADrivers: nvidiadriver.Declared(policy, []v1alpha1.NVIDIADriver{{
			ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: spec,
		}}),
	}
	return in.ForNodePool(in.DriverPools()[0])
}
