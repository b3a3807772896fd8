package assess

import (
	"fmt"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/plan"
	"github.com/clusterpolicy/gpu-operator/internal/readiness"
)

// noteHostDriver names the label by which the host of a node provides the driver, while the node is not ready and no
// driver of the host has been validated. k8s-driver-manager sets that label where it finds a driver. One that is wrong
// keeps the driver's pod off the node, so that what needs the driver waits, or fails in ways of its own.
func (a *Assessment) noteHostDriver(in Input) {
	if a.State == readiness.Ready || a.Stage.Before(v1.StageDriver) {
		return
	}
	for _, onNode := range in.NodePlan.Essential {
		if onNode.Stage != v1.StageDriver || onNode.Expectation != plan.HostProvides {
			continue
		}
		for _, pod := range in.Pods {
			if readiness.ValidatedHost(pod) {
				return
			}
		}
		// The label comes first because long messages are truncated in the policy's status.
		a.Message = fmt.Sprintf("%s, but no driver of the host is validated (if it has none, remove the label): %s",
			onNode.Message, a.Message)
		return
	}
}
