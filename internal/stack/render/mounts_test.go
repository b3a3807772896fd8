package render_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A container runtime cannot mount a directory over a file. A mount on one of these files of the operator's image, or
// on a parent directory, would hide it.
func TestNothingIsMountedOverTheOperatorsPrograms(t *testing.T) {
	files := []string{
		"/gpu-operator",
		"/usr",
		"/usr/bin",
		"/usr/bin/gpu-node",
		"/usr/bin/gpu-node-cuda",
		"/usr/bin/gpu-operator",
	}
	checked := 0
	for operand, sets := range (situation{}).daemonSets(t) {
		for _, ds := range sets {
			spec := &ds.Spec.Template.Spec
			for _, container := range slices.Concat(spec.InitContainers, spec.Containers) {
				if len(container.Command) == 0 || container.Command[0] != "/usr/bin/gpu-node" {
					continue // NVIDIA's images have no such files.
				}
				for _, mount := range container.VolumeMounts {
					checked++
					if slices.Contains(files, mount.MountPath) {
						t.Errorf(
							"%s: container %s mounts %s over a file of its image, or over the way to one",
							operand,
							container.Name,
							mount.MountPath,
						)
					}
				}
			}
		}
	}
	if checked == 0 {
		t.Error("no container of the operator's image mounts anything")
	}
}

// A mounted file stays that of the pod's start even if an upgrade of the host replaces it, and if it is missing the pod
// does not start.
func TestNodeDiscoveryMountsDirectories(t *testing.T) {
	for _, ds := range (situation{}).daemonSets(t)["node-discovery"] {
		for _, volume := range ds.Spec.Template.Spec.Volumes {
			switch source := volume.HostPath; {
			case source == nil:
			case source.Type == nil,
				*source.Type != corev1.HostPathDirectory && *source.Type != corev1.HostPathDirectoryOrCreate:
				t.Errorf("the volume %s mounts %s, which may not be a directory", volume.Name, source.Path)
			}
		}
	}
}
