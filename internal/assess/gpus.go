package assess

import (
	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/readiness"
)

// checkGPUs reports a node that has lost GPUs. It is not ready if fewer are usable than spec.health.minUsable requires,
// but its GPUs stay usable: no driver upgrade and no start-up taint waits for hardware.
func (a *Assessment) checkGPUs(in Input) {
	a.GPUs = readiness.CountGPUs(in.Node).WithFaults(a.Health.faults())
	if !in.NodePlan.NeedsAllocatable || a.State != readiness.Ready || a.Reason != "" {
		return
	}
	verdict := a.GPUs.Verdict(*in.NodePlan.Spec.Health.MinUsable)
	if verdict.State == readiness.Ready {
		a.Reason, a.Message = verdict.Reason, verdict.Message
		return
	}
	a.NodeVerdict = readiness.NodeVerdict{Verdict: verdict, Stage: v1.StageAllocatable}
}

// lostGPUs reports whether the reason is a loss of GPUs.
func (a *Assessment) lostGPUs() bool {
	return a.Reason == v1.ReasonGPUsUnhealthy || a.Reason == v1.ReasonGPUsMissing
}
