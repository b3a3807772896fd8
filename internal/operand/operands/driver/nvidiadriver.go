package driver

import (
	"fmt"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// checkNVIDIADriverCRD refuses spec.driver.useNvidiaDriverCRD where NVIDIADriver objects have not been read, and
// together with drivers of node pools. A running driver is not changed.
func checkNVIDIADriverCRD(in operand.Input) operand.Decision {
	if !in.UsesNVIDIADrivers() {
		return operand.Accept()
	}
	if in.NVIDIADriversUnread != "" {
		return operand.Refuse(v1.ReasonInvalidSpec,
			"spec.driver.useNvidiaDriverCRD: "+in.NVIDIADriversUnread+", or set it to false")
	}
	if in.NVIDIADrivers == nil {
		return operand.Refuse(v1.ReasonNotSupportedYet,
			"spec.driver.useNvidiaDriverCRD: no NVIDIADriver was read: add them to the file of the policy")
	}
	for _, nodePool := range in.Spec.NodePools {
		if operand.VariesDriver(nodePool) {
			return operand.Refuse(v1.ReasonInvalidSpec, fmt.Sprintf(
				"spec.nodePools: %s has a driver, which excludes spec.driver.useNvidiaDriverCRD: remove one of them",
				nodePool.Name))
		}
	}
	return operand.Accept()
}
