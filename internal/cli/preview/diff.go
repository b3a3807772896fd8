package preview

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/kube/drift"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
)

// specDifferences returns the fields in which a policy differs from the one that it replaces, both with the defaults of
// this release, so that a default that is written out is no difference.
func (c *Cluster) specDifferences(policy *v1.ClusterPolicy) ([]drift.Difference, error) {
	before, err := specFields(c.policy)
	if err != nil {
		return nil, err
	}
	after, err := specFields(policy)
	if err != nil {
		return nil, err
	}
	return drift.Between(before, after), nil
}

// specFields returns the effective spec of a policy as the field spec; without one if there is no policy.
func specFields(policy *v1.ClusterPolicy) (map[string]any, error) {
	if policy == nil {
		return map[string]any{}, nil
	}
	spec := effective.Of(policy.Spec)
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&spec)
	if err != nil {
		return nil, fmt.Errorf("converting the spec of %s: %w", policy.Name, err)
	}
	return map[string]any{"spec": fields}, nil
}

// replaced counts the pods of the DaemonSets whose controller replaces or removes them.
func (c *Cluster) replaced(changed []Change) Replaced {
	ending := map[string]bool{}
	for i := range changed {
		change := &changed[i]
		ending[change.Name] = ending[change.Name] || change.RemovesPods() || change.Pods == PodsRoll
	}
	found, nodes := Replaced{}, map[string]bool{}
	for _, pod := range inNamespace[*corev1.Pod](c) {
		owner := metav1.GetControllerOf(pod)
		if owner == nil || owner.Kind != "DaemonSet" || owner.APIVersion != appsv1.SchemeGroupVersion.String() ||
			!ending[owner.Name] {
			continue
		}
		found.Pods++
		nodes[pod.Spec.NodeName] = true
	}
	found.Nodes = len(nodes)
	return found
}
