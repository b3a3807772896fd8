package driver

import (
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// checkNodePool refuses values of a node pool that the API server refuses in spec.driver. In a list of node pools,
// their rules would exceed the cost that it allows.
func checkNodePool(in operand.Input) operand.Decision {
	if in.NodePool == nil || in.NodePool.Driver == nil {
		return operand.Accept()
	}
	driver := in.NodePool.Driver
	field, problem, tolerations := "", "", tolerationProblem(driver.Tolerations)
	switch {
	case exceedsLimits(driver.Resources):
		field, problem = "resources", "cpu or memory requests exceed limits: lower requests or raise limits"
	case needsSeveral(driver.StartupProbe):
		field, problem = "startupProbe.successThreshold", "must be 1 in a start-up probe"
	case needsSeveral(driver.LivenessProbe):
		field, problem = "livenessProbe.successThreshold", "must be 1 in a liveness probe"
	case tolerations != "":
		field, problem = "tolerations", tolerations
	default:
		return operand.Accept()
	}
	return operand.Refuse(v1.ReasonInvalidSpec, in.Field("spec.driver."+field)+": "+problem)
}

func exceedsLimits(resources *v1.ResourceRequirements) bool {
	if resources == nil {
		return false
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		request, limit := resources.Requests[name], resources.Limits[name]
		if _, limited := resources.Limits[name]; limited && request.Cmp(limit) > 0 {
			return true
		}
	}
	return false
}

// needsSeveral reports whether several probes in a row must succeed.
func needsSeveral(probe *v1.ProbeSpec) bool { return probe != nil && probe.SuccessThreshold > 1 }

// tolerationProblem returns why the API server refuses pods with these tolerations, or an empty string.
func tolerationProblem(tolerations []corev1.Toleration) string {
	for _, t := range tolerations {
		switch exists := t.Operator == corev1.TolerationOpExists; {
		case t.Key == "" && !exists:
			return "operator must be Exists if key is empty"
		case t.Value != "" && exists:
			return "value must be empty if operator is Exists"
		case t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute:
			return "effect must be NoExecute if tolerationSeconds is set"
		}
	}
	return ""
}
