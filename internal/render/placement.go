package render

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// resources gives single containers the resources that the spec names for them.
func (r *renderer) resources(pod *corev1.PodSpec) {
	for _, wanted := range r.placement().ContainerResources {
		forEachContainer(pod, func(c *corev1.Container) {
			if c.Name == wanted.Name {
				c.Resources = corev1.ResourceRequirements{Limits: wanted.Limits, Requests: wanted.Requests}
			}
		})
	}
}

func (r *renderer) placement() operand.Placement { return r.plan.Input.PlacementOf(&r.step.Operand) }

// knownContainers refuses resources of a container that none of the operand's pods has: they would have no
// effect without a word.
func knownContainers(placement operand.Placement, objects []Object) error {
	var names []string
	for _, object := range objects {
		if ds, isDaemonSet := object.(*appsv1.DaemonSet); isDaemonSet {
			forEachContainer(&ds.Spec.Template.Spec, func(c *corev1.Container) { names = append(names, c.Name) })
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	names = slices.Compact(names)
	for _, wanted := range placement.ContainerResources {
		if !slices.Contains(names, wanted.Name) && !slices.Contains(placement.OtherContainers, wanted.Name) {
			return operand.InvalidSpec{Message: fmt.Sprintf("%s.containerResources: there is no container %s; there are %s",
				placement.Field, wanted.Name, strings.Join(names, ", "))}
		}
	}
	return nil
}
