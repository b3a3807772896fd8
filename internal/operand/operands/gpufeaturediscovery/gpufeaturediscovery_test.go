package gpufeaturediscovery_test

import (
	"testing"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/gpufeaturediscovery"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
)

func TestAWrongImageNamesItsField(t *testing.T) {
	spec := v1.ClusterPolicySpec{GFD: &v1.GFDSpec{ImageSpec: v1.ImageSpec{Image: "example.com/x:1", Version: "2"}}}
	const want = `spec.gfd: image "example.com/x:1" is a full reference: remove repository and version`
	_, err := gpufeaturediscovery.Operand().Instances(operand.Input{Spec: effective.Of(spec)}, nil)
	if err == nil || err.Error() != want {
		t.Errorf("got error %v, want %q", err, want)
	}
}
