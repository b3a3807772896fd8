package render

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
)

// compose adds to a pod what is not in its template: containers in separate files, then the volumes and the container
// settings of the instance. It runs before the additions that every pod gets.
func (r *renderer) compose(pod *corev1.PodSpec) error {
	for _, proof := range r.step.Operand.Proofs {
		if file := proof.Container + ".yaml"; r.step.WritesMarkers[proof.Marker] && manifest.Exists(file) {
			if err := manifest.AddContainer(pod, file, r.context, 0); err != nil {
				return err
			}
		}
	}
	for _, name := range r.instance.ContainerFiles {
		file := path.Join(string(r.step.Operand.Name), "containers", name+".yaml")
		if err := manifest.AddContainer(pod, file, r.context, len(pod.InitContainers)); err != nil {
			return err
		}
	}
	pod.Volumes = append(pod.Volumes, r.instance.Volumes...)
	return addSettings(pod, r.instance.Additions)
}

// addSettings applies additions to containers by their names. A name that the pod does not have is an error.
func addSettings(pod *corev1.PodSpec, additions map[string]operand.Additions) error {
	added := 0
	manifest.ForEachContainer(pod, func(c *corev1.Container) {
		more, has := additions[c.Name]
		if !has {
			return
		}
		added++
		c.Args = append(c.Args, more.Args...)
		c.Env = append(c.Env, more.Env...)
		c.EnvFrom = append(c.EnvFrom, more.EnvFrom...)
		c.VolumeMounts = append(c.VolumeMounts, more.Mounts...)
		c.StartupProbe = cmp.Or(more.StartupProbe, c.StartupProbe)
		c.LivenessProbe = cmp.Or(more.LivenessProbe, c.LivenessProbe)
		c.ReadinessProbe = cmp.Or(more.ReadinessProbe, c.ReadinessProbe)
	})
	if added != len(additions) {
		names := slices.Sorted(maps.Keys(additions))
		return fmt.Errorf("additions to a container that does not exist, one of %v", names)
	}
	return nil
}
