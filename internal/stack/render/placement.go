package render

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
)

// applyContainerResources sets the resources of single containers that the spec lists by name.
func (r *renderer) applyContainerResources(pod *corev1.PodSpec) {
	for _, spec := range r.placement().ContainerResources {
		manifest.ForEachContainer(pod, func(c *corev1.Container) {
			if c.Name == spec.Name {
				c.Resources = corev1.ResourceRequirements{Limits: spec.Limits, Requests: spec.Requests}
			}
		})
	}
}

// applyInitResources gives the init containers the resources of the operand's other containers, unless the spec lists
// them by name: a ResourceQuota admits only pods of which every container has some. It runs after stampDigest: running
// pods have no use for them, and the digest has the resources of the other containers.
func (r *renderer) applyInitResources(pod *corev1.PodSpec) {
	resources := r.instance.Container.Resources
	if resources == nil {
		return
	}
	listed := r.placement().ContainerResources
	for i := range pod.InitContainers {
		container := &pod.InitContainers[i]
		isListed := func(spec v1.ContainerResources) bool { return spec.Name == container.Name }
		if !slices.ContainsFunc(listed, isListed) {
			container.Resources = corev1.ResourceRequirements{Limits: resources.Limits, Requests: resources.Requests}
		}
	}
}

// placement is that of the operand's pods, on the nodes of the instance's node pool.
func (r *renderer) placement() operand.Placement {
	return r.plan.InputForNodePool(&r.step.Operand, r.instance.NodePool).PlacementOf(&r.step.Operand)
}

// containerNames returns the names of the containers of all pods of these objects, sorted.
func containerNames(objects []manifest.Object) []string {
	var names []string
	for _, object := range objects {
		if ds, isDaemonSet := object.(*appsv1.DaemonSet); isDaemonSet {
			manifest.ForEachContainer(&ds.Spec.Template.Spec, func(c *corev1.Container) { names = append(names, c.Name) })
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// UnknownContainers returns a sentence for each container for which an operand's placement has resources, and which
// none of its pods has: they would silently have no effect. names are those of the containers of all pods; none if
// there are no pods.
func UnknownContainers(placement operand.Placement, names []string) []string {
	if len(names) == 0 {
		return nil
	}
	var unknown []string
	for _, spec := range placement.ContainerResources {
		if !slices.Contains(names, spec.Name) && !slices.Contains(placement.OtherContainers, spec.Name) {
			unknown = append(unknown, fmt.Sprintf("%s.containerResources: there is no container %s, only %s",
				placement.Field, spec.Name, strings.Join(names, ", ")))
		}
	}
	return unknown
}
