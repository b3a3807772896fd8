package assess

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/health/gpuhealth"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// Health is what the health agent of a node reports.
type Health struct {
	// Report of this boot; the zero Report if there is none.
	Report gpuhealth.Report
	// Unknown states why there is no report; empty if there is one.
	Unknown string
}

// HealthOf returns what the health agent of the node reports. A report of an earlier boot does not count.
func HealthOf(node *corev1.Node) *Health {
	value, reported := node.Annotations[labels.GPUHealth]
	if !reported {
		return &Health{Unknown: "the health agent has not reported yet"}
	}
	report, err := gpuhealth.Decode(value)
	if err != nil {
		return &Health{Unknown: err.Error()}
	}
	if boot := node.Status.NodeInfo.BootID; boot != "" && boot != report.Boot {
		return &Health{Unknown: "the health agent has not reported since the boot of the node"}
	}
	return &Health{Report: report}
}

// faults returns the report; the zero Report if there is none.
func (h *Health) faults() gpuhealth.Report {
	if h == nil {
		return gpuhealth.Report{}
	}
	return h.Report
}

// HealthCondition returns the condition nvidia.com/GPUHealthy of the node with this name, without times; nil if the
// node has no health agent. Its reason is that of the worst fault.
func (a *Assessment) HealthCondition(node string) *corev1.NodeCondition {
	if a.Health == nil {
		return nil
	}
	condition := corev1.NodeCondition{Type: labels.ConditionGPUHealthy}
	switch faults := a.Health.Report.Faults; {
	case a.Health.Unknown != "":
		condition.Status, condition.Reason = corev1.ConditionUnknown, v1.ReasonGPUHealthUnknown
		condition.Message = fmt.Sprintf("%s: %s", node, a.Health.Unknown)
	case len(faults) > 0:
		condition.Status, condition.Reason = corev1.ConditionFalse, faults[0].Reason
		condition.Message = fmt.Sprintf("%s: %s", node, a.Health.Report.Text())
	default:
		condition.Status, condition.Reason = corev1.ConditionTrue, v1.ReasonGPUsHealthy
		condition.Message = node + ": no GPU needs a reset, a reboot or a person"
	}
	return &condition
}
