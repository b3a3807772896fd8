package upgrade

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade/gpuuse"
)

// PodRules are which pods may be evicted.
type PodRules struct {
	// Force: also pods without a controller, which nothing creates again.
	Force bool
	// DeleteEmptyDir: also pods with an emptyDir, whose content is lost.
	DeleteEmptyDir bool
}

// PodPolicy is what the upgradePolicy says of pods.
type PodPolicy struct {
	// Namespace of the operator, whose operands are never evicted.
	Namespace string
	// Field is the path of the upgradePolicy, such as spec.driver.upgradePolicy.
	Field string
	// Jobs selects the pods that are waited for; nil for none.
	Jobs k8slabels.Selector
	// PodDeletion are the rules for pods with GPUs.
	PodDeletion PodRules
	// Draining: the node is in StateDrain, so Drain applies too, to the pods that DrainSelector selects; nil for all.
	Draining      bool
	Drain         PodRules
	DrainSelector k8slabels.Selector
}

// ClassifyPods returns the pods of users among those of a node. Static pods and pods of DaemonSets are left out if they
// have no GPU, since an eviction does not end them. A pod that holds GPUs counts though it may not be evicted: the
// driver cannot be unloaded while it runs.
func ClassifyPods(pods []corev1.Pod, policy PodPolicy, claims gpuuse.Claims) Workload {
	workload := Workload{}
	for i := range pods {
		if pod := &pods[i]; policy.isWorkload(pod) {
			policy.classify(pod, gpuuse.Of(pod, "", claims) == gpuuse.Held, &workload)
		}
	}
	return workload
}

// classify adds a pod of a user to the workload.
func (p *PodPolicy) classify(pod *corev1.Pod, usesGPUs bool, workload *Workload) {
	found := WorkloadPod{
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Ending: pod.DeletionTimestamp != nil,
	}
	if why := startsAgain(pod); why != "" {
		if usesGPUs && pod.Spec.NodeSelector[labels.DeployClient] == "" {
			found.Blocked, found.Forbidden, found.Lasting = why, true, true
			workload.Users = append(workload.Users, found)
		}
		return
	}
	if p.Jobs != nil && p.Jobs.Matches(k8slabels.Set(pod.Labels)) {
		workload.Jobs = append(workload.Jobs, found)
	}
	drained := p.drains(pod)
	switch {
	case usesGPUs:
		p.forbidUser(&found, pod, drained)
		workload.Users = append(workload.Users, found)
	case drained:
		found.Blocked = p.Drain.forbid(pod, p.Field+".drain")
		found.Forbidden = found.Blocked != ""
		workload.Others = append(workload.Others, found)
	}
}

// forbidUser sets whether a pod that uses GPUs may be evicted. drained: a drain evicts it, too.
func (p *PodPolicy) forbidUser(found *WorkloadPod, pod *corev1.Pod, drained bool) {
	found.Blocked = p.PodDeletion.forbid(pod, p.Field+".podDeletion")
	inDrain := p.Drain.forbid(pod, p.Field+".drain")
	found.Lasting = found.Blocked != "" && (!drained || inDrain != "")
	if found.Blocked != "" && p.Draining && drained {
		found.Blocked = inDrain
	}
	found.Forbidden = found.Blocked != ""
}

// isWorkload reports whether the pod is a user's and may have to be evicted.
func (p *PodPolicy) isWorkload(pod *corev1.Pod) bool {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return false
	}
	_, operand := pod.Labels[labels.Operand]
	return !operand || pod.Namespace != p.Namespace
}

// startsAgain returns why the node would start the pod again if it was evicted; empty if it would not. It is a static
// pod, or one of a DaemonSet, which also runs its pods on cordoned nodes. Those that select nodes by
// labels.DeployClient are taken off by k8s-driver-manager.
func startsAgain(pod *corev1.Pod) string {
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return "is a static pod: remove its manifest from the node"
	}
	if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "DaemonSet" {
		return "its DaemonSet starts it again: take it off the node"
	}
	return ""
}

// drains reports whether a drain evicts the pod.
func (p *PodPolicy) drains(pod *corev1.Pod) bool {
	if pod.Labels[labels.DrainSkip] == labels.True {
		return false
	}
	return p.DrainSelector == nil || p.DrainSelector.Matches(k8slabels.Set(pod.Labels))
}

// forbid returns all that the pod needs for its eviction; empty if the rules permit it. block is the path of the rules.
// The fields come first, as the end of a long message is cut.
func (r PodRules) forbid(pod *corev1.Pod, block string) string {
	var keys, causes []string
	if !r.Force && metav1.GetControllerOf(pod) == nil {
		keys, causes = append(keys, "force"), append(causes, "no controller")
	}
	if !r.DeleteEmptyDir && hasEmptyDir(pod) {
		keys, causes = append(keys, "deleteEmptyDir"), append(causes, "an emptyDir")
	}
	if len(keys) == 0 {
		return ""
	}
	return "needs " + block + "." + strings.Join(keys, " and ") + ": it has " + strings.Join(causes, " and ")
}

func hasEmptyDir(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(volume corev1.Volume) bool { return volume.EmptyDir != nil })
}
