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
// ready, or the kubelet reports another cause, the verdict stays.
func (s Stack) checkRuntimeHandler(
	onNode plan.OperandOnNode, essential []plan.OperandOnNode, pods Pods, verdict readiness.Verdict,
) readiness.Verdict {
	toolkit := pods[onNode.Operand]
	if onNode.Stage != v1.StageToolkit || onNode.Expectation != plan.Expected || toolkit == nil ||
		verdict.State != readiness.Ready {
		return verdict
	}
	class, cause := s.pendingClass(toolkit, essential, pods)
	if class == "" {
		return verdict
	}
	return withoutHandler(verdict, cmp.Or(s.mainContainer(toolkit), "of the toolkit"), class, cause)
}

// pendingClass returns the RuntimeClass with which the container runtime creates no pod, and what the kubelet reports
// about it; empty if it has created such a pod since the toolkit became ready, or another cause is known.
func (s Stack) pendingClass(toolkit *corev1.Pod, essential []plan.OperandOnNode, pods Pods) (class, cause string) {
	toolkitReady := readiness.ReadySince(toolkit)
	for _, other := range essential {
		pod := pods[other.Operand]
		if pod == nil || pod == toolkit {
			continue
		}
		pending := readiness.PendingRuntimeClass(pod)
		failure, fails := s.StartFailures[pod.UID]
		switch {
		case pending == "" && pod.Spec.RuntimeClassName != nil && readiness.SandboxReadySince(pod).After(toolkitReady):
			return "", ""
		case pending != "" && (!fails || failure.IsOfHandler()):
			class, cause = pending, failure.Message
		}
	}
	return class, cause
}

// withoutHandler is the verdict on a ready toolkit whose runtime creates no pods with the RuntimeClass. cause is what
// the kubelet reports about them; empty if nothing is known yet.
func withoutHandler(verdict readiness.Verdict, container, class, cause string) readiness.Verdict {
	advice := "check that it was restarted with the toolkit's configuration"
	verdict.State, verdict.Reason, verdict.Detail = readiness.Failed, v1.ReasonFailedCreatePodSandBox, cause
	if cause == "" {
		verdict.State, verdict.Reason, advice = readiness.Progressing, v1.ReasonStarting, "if this lasts, "+advice
	}
	verdict.Message = fmt.Sprintf("container %s runs, but the container runtime has created no pod with RuntimeClass %s "+
		"yet: %s", container, class, advice)
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
