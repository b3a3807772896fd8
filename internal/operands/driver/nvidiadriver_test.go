package driver_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/effective"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operands/driver"
)

func TestADriverThatIsLeftToNVIDIADriversIsRefused(t *testing.T) {
	refused := operand.Refuse(v1.ReasonNotSupportedYet,
		"spec.driver.useNvidiaDriverCRD: NVIDIADriver objects are only read by the operator: see their status")
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
