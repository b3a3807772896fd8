package capability_test

import (
	"testing"

	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/internal/capability"
)

// A node keeps what it has while the label is missing.
func TestDecide(t *testing.T) {
	for _, test := range []struct {
		label, deploy string
		want          operand.Choice
	}{
		{"true", "", operand.Install}, {"true", "true", operand.Install}, {"", "true", operand.Install},
		{"", "", operand.Absent}, {"false", "true", operand.Absent}, {"false", "", operand.Absent},
	} {
		facts := nodeinfo.Facts{Deploy: map[string]string{"mig-manager": test.deploy}}
		if got := capability.Decide("mig-manager", test.label, facts); got != (operand.Decision{Choice: test.want}) {
			t.Errorf("%+v: got %+v", test, got)
		}
	}
}
