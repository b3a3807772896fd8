package render

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
)

// requestInjection makes the pods of operands that need GPUs request their injection: by RuntimeClass, or by
// annotations for the toolkit's NRI plugin. An OCI hook of CRI-O needs neither.
func (r *renderer) requestInjection(template *corev1.PodTemplateSpec) {
	if !r.step.Operand.NeedsInjection {
		return
	}
	if class := r.context.PodRuntimeClass; class != "" {
		template.Spec.RuntimeClassName = &class
	}
	if !r.plan.Input.NRIEnabled() {
		return
	}
	manifest.ForEachContainer(&template.Spec, func(c *corev1.Container) {
		if !optsOutOfGPUs(c) {
			annotate(&template.ObjectMeta, labels.NRIContainerPrefix+c.Name, labels.ManagementGPUs)
		}
	})
}

// optsOutOfGPUs reports whether the container's environment requests no GPUs, which NVIDIA's runtime reads.
func optsOutOfGPUs(c *corev1.Container) bool {
	return slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool {
		return e.Name == labels.VisibleDevices && e.Value == labels.NoVisibleDevices
	})
}
