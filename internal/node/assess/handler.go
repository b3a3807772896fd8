package assess

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

// checkRuntimeHandler changes the verdict on stage Toolkit to progressing while the toolkit's pod is ready but the
// container runtime creates no pods with the toolkit's runtime handler. A toolkit that hangs is then reported itself,
// not the operand that cannot start because of it. If the runtime has created such a pod since the toolkit became
// ready, the cause is another one and the verdict stays.
func (s Stack) checkRuntimeHandler(
	onNode plan.OperandOnNode, essential []plan.OperandOnNode, pods Pods, verdict readiness.Verdict,
) readiness.Verdict {
	toolkit := pods[onNode.Operand]
	if onNode.Stage != v1.StageToolkit || onNode.Expectation != plan.Expected || toolkit == nil ||
		verdict.State != readiness.Ready {
		return verdict
	}
	class, toolkitReady := "", readiness.ReadySince(toolkit)
	for _, other := range essential {
		pod := pods[other.Operand]
		if pod == nil || pod == toolkit {
			continue
		}
		if pending := readiness.PendingRuntimeClass(pod); pending != "" {
			class = pending
		} else if pod.Spec.RuntimeClassName != nil && readiness.SandboxReadySince(pod).After(toolkitReady) {
			return verdict
		}
	}
	if class == "" {
		return verdict
	}
	verdict.State, verdict.Reason = readiness.Progressing, v1.ReasonStarting
	verdict.Message = fmt.Sprintf("container %s runs, but the container runtime has created no pod with RuntimeClass %s "+
		"yet: if this lasts, check that it was restarted with the toolkit's configuration",
		cmp.Or(s.mainContainer(toolkit), "of the toolkit"), class)
	return verdict
}

// mainContainer returns the first container of a pod's DaemonSet, which in the manifests is the operand itself; empty
// if the DaemonSet is unknown. The cached pod may have no containers.
func (s Stack) mainContainer(pod *corev1.Pod) string {
	if pod == nil {
		return ""
	}
	ds := daemonSetOf(pod, s.DaemonSets)
	if ds == nil || len(ds.Spec.Template.Spec.Containers) == 0 {
		return ""
	}
	return ds.Spec.Template.Spec.Containers[0].Name
}
