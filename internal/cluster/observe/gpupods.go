package observe

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade/gpuuse"
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
	claims := NewGPUClaims(live).Assumed(ctx)
	for i := range pods.Items {
		pod := &pods.Items[i]
		if _, isOperand := pod.Labels[labels.Operand]; isOperand && pod.Namespace == namespace {
			continue
		}
		if gpuuse.Of(pod, runtimeClass, claims) != gpuuse.None {
			names = append(names, pod.Namespace+"/"+pod.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}
