package readiness

import (
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// daemonTolerations are the tolerations that the DaemonSet controller adds to every pod.
var daemonTolerations = tolerationsFor(map[string]corev1.TaintEffect{
	corev1.TaintNodeNotReady:       corev1.TaintEffectNoExecute,
	corev1.TaintNodeUnreachable:    corev1.TaintEffectNoExecute,
	corev1.TaintNodeDiskPressure:   corev1.TaintEffectNoSchedule,
	corev1.TaintNodeMemoryPressure: corev1.TaintEffectNoSchedule,
	corev1.TaintNodePIDPressure:    corev1.TaintEffectNoSchedule,
	corev1.TaintNodeUnschedulable:  corev1.TaintEffectNoSchedule,
})

// hostTolerations are those that it adds to pods with hostNetwork.
var hostTolerations = tolerationsFor(map[string]corev1.TaintEffect{
	corev1.TaintNodeNetworkUnavailable: corev1.TaintEffectNoSchedule,
})

func tolerationsFor(taints map[string]corev1.TaintEffect) []corev1.Toleration {
	var all []corev1.Toleration
	for key, effect := range taints {
		all = append(all, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect})
	}
	return all
}

// Selects reports whether the nodeSelector and node affinity of a DaemonSet match the node. Taints are ignored.
func Selects(ds *appsv1.DaemonSet, node *corev1.Node) bool {
	pod := &ds.Spec.Template.Spec
	for key, value := range pod.NodeSelector {
		// The common case, without the allocations below.
		if node.Labels[key] != value {
			return false
		}
	}
	// An invalid affinity matches nothing; the API server rejects it anyway.
	matches, err := nodeaffinity.NewRequiredNodeAffinity(pod.NodeSelector, pod.Affinity).Match(node)
	return err == nil && matches
}

// MissingPod returns why a DaemonSet that selects the node has no pod there: an untolerated taint, by the rules of the
// DaemonSet controller, or that the pod is not created yet. Taints for a node that is not ready or unreachable are
// reported as that state, because users should not tolerate them.
func MissingPod(ds *appsv1.DaemonSet, node *corev1.Node) Verdict {
	taints, kubelet := node.Spec.Taints, Kubelet(node)
	if kubelet.State != Ready {
		taints = slices.DeleteFunc(slices.Clone(taints), isKubeletTaint)
	}
	taint, found := firstUntolerated(&ds.Spec.Template.Spec, taints)
	switch {
	case !found && len(taints) < len(node.Spec.Taints):
		return progressing(kubelet.Reason,
			fmt.Sprintf("DaemonSet %s creates no pod on the node: %s", ds.Name, kubelet.Message))
	case !found:
		return progressing(v1.ReasonPodMissing, fmt.Sprintf("DaemonSet %s has not created a pod on the node yet", ds.Name))
	}
	return progressing(v1.ReasonUntoleratedTaint, fmt.Sprintf(
		"taint %s is not tolerated by DaemonSet %s: add a toleration to spec.daemonsets.tolerations",
		taint.ToString(), ds.Name))
}

// isKubeletTaint reports whether a taint prevents scheduling because the node is unreachable or not ready.
func isKubeletTaint(taint corev1.Taint) bool {
	return taint.Effect == corev1.TaintEffectNoSchedule &&
		(taint.Key == corev1.TaintNodeUnreachable || taint.Key == corev1.TaintNodeNotReady)
}

// firstUntolerated returns the first NoSchedule or NoExecute taint that the pod does not tolerate.
func firstUntolerated(pod *corev1.PodSpec, taints []corev1.Taint) (corev1.Taint, bool) {
	if len(taints) == 0 {
		return corev1.Taint{}, false
	}
	tolerations := append(append([]corev1.Toleration{}, pod.Tolerations...), daemonTolerations...)
	if pod.HostNetwork {
		tolerations = append(tolerations, hostTolerations...)
	}
	return scheduling.FindMatchingUntoleratedTaint(logr.Discard(), taints, tolerations, func(taint *corev1.Taint) bool {
		return taint.Effect == corev1.TaintEffectNoSchedule || taint.Effect == corev1.TaintEffectNoExecute
	}, true)
}
