package manifest

import (
	"errors"
	"fmt"
	"path"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
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

// AddContainer adds the container of a file, which is a template with these values, and its volumes to a pod: an init
// container at that index, any other container at the end.
func AddContainer(pod *corev1.PodSpec, file string, values any, at int) error {
	text, err := execute(file, values)
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
		return containerFile{}, err
	}
	all := slices.Concat(found.InitContainers, found.Containers)
	if len(all) != 1 || all[0].Name+".yaml" != path.Base(file) {
		return containerFile{}, errors.New("the file must have one container, with the name of the file")
	}
	return found, nil
}

// ForEachContainer calls do for each container of a pod, init containers first.
func ForEachContainer(pod *corev1.PodSpec, do func(*corev1.Container)) {
	for i := range pod.InitContainers {
		do(&pod.InitContainers[i])
	}
	for i := range pod.Containers {
		do(&pod.Containers[i])
	}
}
