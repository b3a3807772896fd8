package operand_test

import (
	"testing"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/effective"
	"github.com/clusterpolicy/gpu-operator/internal/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

var precompiled, toolkit = nodeinfo.PoolCriteria{Kernel: true}, nodeinfo.PoolCriteria{CoreOS: true}

func TestPoolCriteriaFollowTheSpec(t *testing.T) {
	tests := map[string]struct {
		driver  *v1.DriverSpec
		toolkit *bool
		want    nodeinfo.PoolCriteria
	}{
		"no driver block":           {want: toolkit},
		"an empty block":            {driver: &v1.DriverSpec{}, want: toolkit},
		"built":                     {driver: &v1.DriverSpec{UsePrecompiled: new(false)}, toolkit: new(true), want: toolkit},
		"built without the toolkit": {toolkit: new(false)},
		"precompiled":               {driver: &v1.DriverSpec{UsePrecompiled: new(true)}, want: precompiled},
		"precompiled anyway": {
			driver:  &v1.DriverSpec{UsePrecompiled: new(true)},
			toolkit: new(true),
			want:    precompiled,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			spec := v1.ClusterPolicySpec{Driver: test.driver, Operator: &v1.OperatorSpec{UseOCPDriverToolkit: test.toolkit}}
			if got := (operand.Input{Spec: effective.Of(spec)}).PoolCriteria(); got != test.want {
				t.Errorf("got %+v", got)
			}
		})
	}
}
