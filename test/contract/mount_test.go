package contract

import (
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// mount returns the mount at exactly that path.
func mount(p place, c *corev1.Container) (any, error) {
	for i := range c.VolumeMounts {
		if c.VolumeMounts[i].MountPath == p.row.Name {
			return describe(p.spec(), &c.VolumeMounts[i]), nil
		}
	}
	return nil, nil
}

// describe returns the source and the options of a mount.
func describe(pod *corev1.PodSpec, m *corev1.VolumeMount) map[string]any {
	found := map[string]any{"readOnly": m.ReadOnly, "subPath": m.SubPath}
	if m.MountPropagation != nil {
		found["propagation"] = *m.MountPropagation
	}
	switch source := source(pod, m); {
	case source.HostPath != nil:
		found["hostPath"] = source.HostPath.Path
		found["type"] = source.HostPath.Type
	case source.ConfigMap != nil:
		found["configMap"] = source.ConfigMap.Name
	case source.Secret != nil:
		found["secret"] = source.Secret.SecretName
	case source.EmptyDir != nil:
		found["emptyDir"] = true
	}
	return found
}

func source(pod *corev1.PodSpec, m *corev1.VolumeMount) corev1.VolumeSource {
	for _, volume := range pod.Volumes {
		if volume.Name == m.Name {
			return volume.VolumeSource
		}
	}
	return corev1.VolumeSource{}
}

func mountsOf(p place, c *corev1.Container) (any, error) {
	var all []string
	for i := range c.VolumeMounts {
		if source := source(p.spec(), &c.VolumeMounts[i]); source.HostPath != nil {
			all = append(all, source.HostPath.Path)
		}
	}
	return all, nil
}

// covering returns the deepest mount that contains a path of the container.
func covering(c *corev1.Container, file string) *corev1.VolumeMount {
	var found *corev1.VolumeMount
	for i := range c.VolumeMounts {
		m := &c.VolumeMounts[i]
		inside := file == m.MountPath || strings.HasPrefix(file, strings.TrimSuffix(m.MountPath, "/")+"/")
		if inside && (found == nil || len(m.MountPath) > len(found.MountPath)) {
			found = m
		}
	}
	return found
}

// sees returns the host path of a path of the container.
func sees(pod *corev1.PodSpec, c *corev1.Container, file string) any {
	m := covering(c, file)
	if m == nil {
		return nil
	}
	found := describe(pod, m)
	if host, isHostPath := found["hostPath"].(string); isHostPath {
		found["hostPath"] = path.Join(host, m.SubPath, strings.TrimPrefix(file, m.MountPath))
	}
	return found
}

// hostPathOfEnv returns the host directory that a variable refers to.
func hostPathOfEnv(p place, c *corev1.Container) (any, error) {
	directory, _ := env(c, p.row.Name).(string)
	found, _ := sees(p.spec(), c, directory).(map[string]any)
	return found["hostPath"], nil
}

// file returns the ConfigMap or Secret and the key of a file of the container.
func file(pod *corev1.PodSpec, c *corev1.Container, name string) any {
	m := covering(c, name)
	if m == nil {
		return nil
	}
	volume := source(pod, m)
	inVolume := path.Join(m.SubPath, strings.TrimPrefix(strings.TrimPrefix(name, m.MountPath), "/"))
	for _, from := range projections(volume) {
		switch {
		case from.ConfigMap != nil:
			if key := keyOf(from.ConfigMap.Items, inVolume); key != "" {
				return map[string]any{"configMap": from.ConfigMap.Name, "key": key}
			}
		case from.Secret != nil:
			if key := keyOf(from.Secret.Items, inVolume); key != "" {
				return map[string]any{"secret": from.Secret.Name, "key": key}
			}
		}
	}
	return nil
}

// projections returns the ConfigMaps and Secrets of a volume.
func projections(source corev1.VolumeSource) []corev1.VolumeProjection {
	switch {
	case source.Projected != nil:
		return source.Projected.Sources
	case source.ConfigMap != nil:
		return []corev1.VolumeProjection{{ConfigMap: &corev1.ConfigMapProjection{
			LocalObjectReference: source.ConfigMap.LocalObjectReference, Items: source.ConfigMap.Items,
		}}}
	case source.Secret != nil:
		return []corev1.VolumeProjection{{Secret: &corev1.SecretProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: source.Secret.SecretName}, Items: source.Secret.Items,
		}}}
	default:
		return nil
	}
}

// keyOf returns the key of a file of the volume. Without items each key is a file.
func keyOf(items []corev1.KeyToPath, file string) string {
	if len(items) == 0 && !strings.Contains(file, "/") {
		return file
	}
	for _, item := range items {
		if item.Path == file {
			return item.Key
		}
	}
	return ""
}
