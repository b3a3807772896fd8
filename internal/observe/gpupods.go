package observe

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
)

// GPUPods returns namespace/name of the pods on the node that may use its GPUs, sorted. It lists the pods of all
// namespaces in one call, so live must read from the API server: caches have only the operands' pods. runtimeClass is
// the main RuntimeClass of the policy.
func GPUPods(ctx context.Context, live client.Reader, node, namespace, runtimeClass string) ([]string, error) {
	pods := &corev1.PodList{}
	if err := live.List(ctx, pods, client.MatchingFields{PodNodeField: node}); err != nil {
		return nil, fmt.Errorf("listing the pods of node %s: %w", node, err)
	}
	var names []string
	for i := range pods.Items {
		pod := &pods.Items[i]
		if _, isOperand := pod.Labels[labels.Operand]; isOperand && pod.Namespace == namespace {
			continue
		}
		if MayUseGPU(pod, runtimeClass) {
			names = append(names, pod.Namespace+"/"+pod.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// MayUseGPU reports whether a pod that has not terminated may use GPUs: by a resource, by a claim, whose devices are
// unknown to the operator, or by the RuntimeClass, with which any container may get them.
func MayUseGPU(pod *corev1.Pod, runtimeClass string) bool {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return false
	}
	class := pod.Spec.RuntimeClassName
	if class != nil && (*class == runtimeClass || strings.HasPrefix(*class, labels.DefaultRuntimeClass)) {
		return true
	}
	return requestsGPUs(pod) || len(pod.Spec.ResourceClaims) > 0
}

// requestsGPUs reports whether a container of the pod requests devices of the device plugin.
func requestsGPUs(pod *corev1.Pod) bool {
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			if requestsGPU(containers[i].Resources.Limits) || requestsGPU(containers[i].Resources.Requests) {
				return true
			}
		}
	}
	return false
}

func requestsGPU(resources corev1.ResourceList) bool {
	for name, quantity := range resources {
		if strings.HasPrefix(string(name), labels.VendorPrefix) && quantity.Sign() > 0 {
			return true
		}
	}
	return false
}
