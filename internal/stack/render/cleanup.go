package render

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

// cleanupValues has the paths on the host that only the spec knows.
type cleanupValues struct {
	MPSRoot string
	// Runtime is what the spec tells of the container runtime.
	Runtime operand.HostRuntime
}

// Cleanup renders the objects that clean up hosts while the stack of a deleted policy is removed. Their pods run on
// the nodes with the label labels.Cleanup, whatever the taints of these.
func Cleanup(catalogue operand.Catalogue, in operand.Input, owner Owner) ([]manifest.Object, error) {
	helper, err := helperOf(in)
	if err != nil {
		return nil, err
	}
	r := renderer{
		plan: plan.Plan{Input: in}, owner: owner,
		step: plan.Step{Operand: operand.Operand{Name: labels.CleanupOperand}},
		context: templateValues{
			Namespace: in.Namespace, Paths: in.Spec.Paths(), Helper: helper, Values: cleanupValues{
				MPSRoot: in.Spec.DevicePlugin.MPS.Root, Runtime: catalogue.HostRuntime(in),
			},
		},
	}
	objects, err := manifest.DecodeFolder(labels.CleanupOperand, r.context)
	if err != nil {
		return nil, fmt.Errorf("rendering the clean-up of hosts: %w", err)
	}
	for _, object := range objects {
		r.setOwner(object)
		if ds, isDaemonSet := object.(*appsv1.DaemonSet); isDaemonSet {
			r.placeCleanup(ds)
		}
	}
	return objects, nil
}

// placeCleanup adds to the DaemonSet what does not depend on the clean-up itself.
func (r *renderer) placeCleanup(ds *appsv1.DaemonSet) {
	template := &ds.Spec.Template
	template.Labels[labels.ManagedBy] = labels.ManagedByValue
	template.Labels[labels.Operand] = labels.CleanupOperand
	pod := &template.Spec
	pod.NodeSelector = map[string]string{labels.Cleanup: labels.True}
	pod.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	pod.PriorityClassName = r.plan.Input.Spec.DaemonSets.PriorityClassName
	pod.ImagePullSecrets = append(pod.ImagePullSecrets, r.pullSecrets()...)
	r.applyGlobal(pod)
	keepLastOutput(pod)
}
