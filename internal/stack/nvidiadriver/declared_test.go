package nvidiadriver_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/nvidiadriver"
)

// An object inherits nothing of the driver of the policy, and one that equals it needs no DaemonSet of its own.
func TestDeclaredDriversInheritNothing(t *testing.T) {
	policy := v1.ClusterPolicySpec{
		Driver: &v1.DriverSpec{
			UseNvidiaDriverCRD: new(true), ImageSpec: v1.ImageSpec{Version: "590.44.01"}, SecretEnv: "environment",
			ContainerSpec: v1.ContainerSpec{Env: []v1.EnvVar{}},
		},
		GDS: &v1.GDSSpec{Enabled: new(true)},
	}
	equal := v1alpha1.NVIDIADriverSpec{
		ImageSpec: v1.ImageSpec{Version: "590.44.01"}, SecretEnv: "environment", GDS: &v1.GDSSpec{Enabled: new(true)},
	}
	objects := []v1alpha1.NVIDIADriver{
		{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, {ObjectMeta: metav1.ObjectMeta{Name: "equal"}, Spec: equal},
		{ObjectMeta: metav1.ObjectMeta{Name: "deleted", DeletionTimestamp: new(metav1.Now())}},
	}
	in := operand.Input{Spec: effective.Of(policy), NVIDIADrivers: nvidiadriver.Declared(policy, objects)}
	varies := map[string]bool{}
	for _, pool := range in.DriverPools() {
		varies[pool.Name] = operand.VariesDriver(pool.NodePoolSpec)
	}
	if diff := cmp.Diff(map[string]bool{"equal": false, "other": true}, varies); diff != "" {
		t.Errorf("objects with an own driver: -want +got:\n%s", diff)
	}
	other := in.NVIDIADrivers[1].Spec
	if other.Driver.Version != "" || other.Driver.SecretEnv != "" || *other.GDS.Enabled ||
		!*other.Driver.UpgradePolicy.AutoUpgrade {
		t.Errorf("inherited: %+v %+v", other.Driver, other.GDS)
	}
}

// An object that cannot be decoded keeps its nodes, and gets no driver. One that may have lost its nodeSelector takes
// no nodes of others.
func TestUndecodableObjectsAreRefused(t *testing.T) {
	object := func(name string, spec v1alpha1.NVIDIADriverSpec) v1alpha1.NVIDIADriver {
		return v1alpha1.NVIDIADriver{Spec: spec, ObjectMeta: metav1.ObjectMeta{
			Name: name, Annotations: map[string]string{"nvidia.com/gpu-operator.undecodable": "cannot be decoded: spec.a"},
		}}
	}
	drivers := nvidiadriver.Declared(v1.ClusterPolicySpec{}, []v1alpha1.NVIDIADriver{
		object("selects", v1alpha1.NVIDIADriverSpec{NodeSelector: v1.NodePoolSelector{"team": "a"}}),
		object("default", v1alpha1.NVIDIADriverSpec{Default: true}),
		object("selects-all", v1alpha1.NVIDIADriverSpec{}),
		{ObjectMeta: metav1.ObjectMeta{Name: "good"}},
	})
	got := map[string]string{}
	for _, driver := range drivers {
		got[driver.Name] = driver.Refused.Reason + " " + driver.Refused.Message
	}
	if diff := cmp.Diff(map[string]string{
		"selects": "Undecodable spec: cannot be decoded: spec.a",
		"default": "Undecodable spec: cannot be decoded: spec.a", "good": " ",
	}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
