package render

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// containerFile is a file with one container, or one init container, and the volumes that only it needs. The file is
// named after the container. It is a template with the same context as the other assets of the operand, and is decoded
// strictly: an unknown field or a missing key is an error.
type containerFile struct {
	InitContainers []corev1.Container `json:"initContainers,omitempty"`
	Containers     []corev1.Container `json:"containers,omitempty"`
	// Volumes are appended to those of the pod. A volume that the pod already has must be identical.
	Volumes []corev1.Volume `json:"volumes,omitempty"`
}

// compose adds to a pod what is not in its template: containers in separate files, then the volumes and the container
// settings of the instance. It runs before the additions that every pod gets.
func (r *renderer) compose(pod *corev1.PodSpec) error {
	for _, proof := range r.step.Operand.Proves {
		if file := proof.Container + ".yaml"; r.step.Proves[proof.Marker] && templates[file] != nil {
			if err := r.addContainer(pod, file, 0); err != nil {
				return err
			}
		}
	}
	for _, name := range r.instance.ContainerFiles {
		file := path.Join(string(r.step.Operand.Name), "containers", name+".yaml")
		if err := r.addContainer(pod, file, len(pod.InitContainers)); err != nil {
			return err
		}
	}
	pod.Volumes = append(pod.Volumes, r.instance.Volumes...)
	return addSettings(pod, r.instance.Additions)
}

// addContainer adds the container of a file: an init container at that index, any other container at the end.
func (r *renderer) addContainer(pod *corev1.PodSpec, file string, at int) error {
	text, err := execute(file, r.context)
	if err != nil {
		return err
	}
	found, err := decodeContainer(file, text)
	if err != nil {
		return fmt.Errorf("asset %s: %w", file, err)
	}
	pod.InitContainers = slices.Insert(pod.InitContainers, at, found.InitContainers...)
	pod.Containers = append(pod.Containers, found.Containers...)
	if err := addVolumes(pod, found.Volumes); err != nil {
		return fmt.Errorf("asset %s: %w", file, err)
	}
	return nil
}

// addVolumes appends the volumes that the pod does not have. A different volume of the same name is an error.
func addVolumes(pod *corev1.PodSpec, volumes []corev1.Volume) error {
	for _, volume := range volumes {
		at := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == volume.Name })
		switch {
		case at < 0:
			pod.Volumes = append(pod.Volumes, volume)
		case !reflect.DeepEqual(pod.Volumes[at], volume):
			return fmt.Errorf("the pod has a different volume %s", volume.Name)
		}
	}
	return nil
}

func decodeContainer(file string, text []byte) (containerFile, error) {
	var found containerFile
	if err := yaml.UnmarshalStrict(text, &found); err != nil {
		return found, err
	}
	all := slices.Concat(found.InitContainers, found.Containers)
	if len(all) != 1 || all[0].Name+".yaml" != path.Base(file) {
		return found, errors.New("the file must have one container, with the name of the file")
	}
	return found, nil
}

// addSettings applies additions to containers by their names. A name that the pod does not have is an error.
func addSettings(pod *corev1.PodSpec, additions map[string]operand.Additions) error {
	added := 0
	forEachContainer(pod, func(c *corev1.Container) {
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
