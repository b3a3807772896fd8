package assess

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/plan"
	"github.com/clusterpolicy/gpu-operator/internal/readiness"
)

// checkRuntimeHandler holds the stage Toolkit back where the toolkit is ready, as far as it has a probe, and the container
// runtime makes no pods that need its handler. So a toolkit that hangs is told itself, rather than the operand
// that cannot start for it. Where the runtime has made such a pod since the toolkit came up, the cause is another.
func (s Stack) checkRuntimeHandler(stage plan.Rung, stages []plan.Rung, pods Pods, verdict readiness.Verdict) readiness.Verdict {
	toolkit := pods[stage.Operand]
	if stage.Stage != v1.StageToolkit || stage.Need != plan.Expected || toolkit == nil || verdict.State != readiness.Ready {
		return verdict
	}
	class, up := "", readiness.ReadySince(toolkit)
	for _, above := range stages {
		pod := pods[above.Operand]
		if pod == nil || pod == toolkit {
			continue
		}
		if waits := readiness.PendingRuntimeClass(pod); waits != "" {
			class = waits
		} else if pod.Spec.RuntimeClassName != nil && readiness.SandboxReadySince(pod).After(up) {
			return verdict
		}
	}
	if class == "" {
		return verdict
	}
	verdict.State, verdict.Reason = readiness.Progressing, v1.ReasonStarting
	verdict.Message = fmt.Sprintf("container %s runs, but the runtime makes no pod of RuntimeClass %s yet",
		s.mainContainer(toolkit), class)
	return verdict
}

// mainContainer is the first container of a pod's DaemonSet, by which the manifests have what the operand is for;
// empty where there is none. The pod itself does not tell once it works.
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
