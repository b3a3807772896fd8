package rollout

import (
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
)

// mountTokenAsFile changes the pod to mount the client token as earlier releases did: as one file of the volume with
// the licence. Pods that differ in this alone are not outdated.
func mountTokenAsFile(pod *corev1.PodSpec) {
	at := func(name string) int {
		return slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == name })
	}
	token, licence := at(labels.LicenceTokenVolume), at(labels.LicenceVolume)
	if token < 0 || licence < 0 {
		return
	}
	switch source, more := &pod.Volumes[licence].VolumeSource, &pod.Volumes[token].VolumeSource; {
	case source.Secret != nil && more.Secret != nil:
		source.Secret.Items = append(source.Secret.Items, more.Secret.Items...)
	case source.ConfigMap != nil && more.ConfigMap != nil:
		source.ConfigMap.Items = append(source.ConfigMap.Items, more.ConfigMap.Items...)
	}
	pod.Volumes = slices.Delete(pod.Volumes, token, token+1)
	manifest.ForEachContainer(pod, func(c *corev1.Container) {
		for i := range c.VolumeMounts {
			if mount := &c.VolumeMounts[i]; mount.Name == labels.LicenceTokenVolume {
				mount.Name, mount.SubPath = labels.LicenceVolume, labels.LicenceTokenKey
				mount.MountPath = path.Join(mount.MountPath, labels.LicenceTokenKey)
			}
		}
	})
}
