package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpolicy/gpu-operator/internal/cli/overview"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade/gpuuse"
)

// gpuPod is what the bundle has of a pod outside the operator's namespace: nothing of its programs.
type gpuPod struct {
	Namespace    string                `json:"namespace"`
	Name         string                `json:"name"`
	Node         string                `json:"node,omitempty"`
	Phase        corev1.PodPhase       `json:"phase"`
	Requests     overview.Requests     `json:"requests,omitempty"`
	Claims       []string              `json:"claims,omitempty"`
	RuntimeClass string                `json:"runtimeClass,omitempty"`
	NodeSelector map[string]string     `json:"nodeSelector,omitempty"`
	Tolerations  []corev1.Toleration   `json:"tolerations,omitempty"`
	Conditions   []corev1.PodCondition `json:"conditions,omitempty"`
}

// gpuPods lists the pods that have GPUs, or request them, but for those that have succeeded.
func (c *collector) gpuPods(ctx context.Context) {
	var found []gpuPod
	claims, err := gpuClaims(ctx, c.session)
	if err != nil {
		c.bundle.missing("resource claims, all of which count as claims for GPUs", "/apis/"+resourcev1.GroupName, err)
	}
	_, err = list(ctx, c.session.core.Pods("").List, metav1.ListOptions{}, func(pod *corev1.Pod) {
		if wantsGPU(pod, claims) {
			found = append(found, gpuPod{
				pod.Namespace, pod.Name, pod.Spec.NodeName, pod.Status.Phase, overview.GPURequests(pod),
				gpuuse.ClaimsOf(pod), value(pod.Spec.RuntimeClassName), pod.Spec.NodeSelector, pod.Spec.Tolerations,
				pod.Status.Conditions,
			})
		}
	})
	c.computed(bundleFile{Name: "gpu-pods.yaml", Source: "/api/v1/pods"}, found, err)
}

// wantsGPU reports whether a pod has a GPU or requests one. A pod without a node counts with any claim, as it has no
// device yet. A pod that has failed counts, one that has succeeded does not.
func wantsGPU(pod *corev1.Pod, claims gpuuse.Claims) bool {
	return pod.Status.Phase != corev1.PodSucceeded && (gpuuse.OfRequests(pod) == gpuuse.Held ||
		gpuuse.Of(pod, "", claims) == gpuuse.Held || pod.Spec.NodeName == "" && len(pod.Spec.ResourceClaims) > 0)
}

func value(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}
