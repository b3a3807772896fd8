package driver

import (
	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// checkNVIDIADriverCRD refuses to leave the driver to objects of the kind NVIDIADriver, which nobody here reads; the
// driver that runs is left alone.
func checkNVIDIADriverCRD(in operand.Input) operand.Decision {
	if !*in.Spec.Driver.UseNvidiaDriverCRD {
		return operand.Installed()
	}
	return operand.Refused(v1.ReasonNotSupportedYet,
		"spec.driver.useNvidiaDriverCRD is not supported yet: remove it, and set in spec.driver what the NVIDIADriver sets")
}
