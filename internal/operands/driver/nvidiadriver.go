package driver

import (
	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// checkNVIDIADriverCRD refuses spec.driver.useNvidiaDriverCRD, as the operator does not read NVIDIADriver objects. A
// running driver is not changed.
func checkNVIDIADriverCRD(in operand.Input) operand.Decision {
	if !*in.Spec.Driver.UseNvidiaDriverCRD {
		return operand.Accept()
	}
	return operand.Refuse(v1.ReasonNotSupportedYet,
		"spec.driver.useNvidiaDriverCRD is not supported yet: remove it, and set in spec.driver what the NVIDIADriver sets")
}
