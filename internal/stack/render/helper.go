package render

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

const (
	markersVolume = "gpu-node-markers"
	// copiedDir is the mount path of labels.HelperVolume in the container that makes the copy.
	copiedDir = "/copied"
	// helperUser is the user of the operator image. The spec may name a helper image with another user.
	helperUser = 65532
)

// addHelperContainer inserts the first init container: gpu-node waits for other operands, and copies itself for
// containers of other images. Both are in one container, as the kubelet takes about a second per init container.
func (r *renderer) addHelperContainer(pod *corev1.PodSpec) {
	copies := slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == labels.HelperVolume }) &&
		!slices.ContainsFunc(pod.InitContainers, writesHelperVolume)
	var container corev1.Container
	switch {
	case len(r.step.AwaitedMarkers) > 0:
		container = r.prepareWaitContainer(pod)
		if copies {
			container.Args = append(container.Args, labels.CopyToFlag+copiedDir)
		}
	case copies:
		container = r.helperContainer(labels.CopyContainer, "copy", copiedDir)
	default:
		return
	}
	if copies {
		mount := corev1.VolumeMount{Name: labels.HelperVolume, MountPath: copiedDir}
		container.VolumeMounts = append(container.VolumeMounts, mount)
	}
	pod.InitContainers = slices.Insert(pod.InitContainers, 0, container)
}

// writesHelperVolume reports whether a container of the manifest makes the copy.
func writesHelperVolume(c corev1.Container) bool {
	return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
		return m.Name == labels.HelperVolume && !m.ReadOnly
	})
}

// prepareWaitContainer returns a container that waits for the markers of the operands that the pod requires, and adds
// the volume with the markers to the pod.
func (r *renderer) prepareWaitContainer(pod *corev1.PodSpec) corev1.Container {
	names := make([]string, 0, len(r.step.AwaitedMarkers))
	for _, marker := range r.step.AwaitedMarkers {
		names = append(names, string(marker))
	}
	container := r.helperContainer(labels.WaitContainer, "wait", labels.WaitForFlag+strings.Join(names, ","))
	if r.step.Operand.NeedsInjection && slices.Contains(r.step.AwaitedMarkers, labels.MarkerDriver) {
		container.Args = append(container.Args, labels.InjectedFlag)
	}
	container.VolumeMounts = []corev1.VolumeMount{{
		Name: markersVolume, MountPath: labels.ValidationsDir, ReadOnly: true,
		MountPropagation: new(corev1.MountPropagationHostToContainer),
	}}
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: markersVolume, VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: labels.ValidationsDir, Type: new(corev1.HostPathDirectoryOrCreate)},
	}})
	return container
}

// helperContainer is an unprivileged container of the helper image. It requests no GPUs: the runtime must not
// inject any before the stack is up.
func (r *renderer) helperContainer(name string, args ...string) corev1.Container {
	return corev1.Container{
		Name:            name,
		Image:           r.context.Helper.Image,
		ImagePullPolicy: corev1.PullPolicy(r.context.Helper.PullPolicy),
		Command:         []string{labels.HelperBinary},
		Args:            args,
		Env:             []corev1.EnvVar{{Name: labels.VisibleDevices, Value: labels.NoVisibleDevices}},
		SecurityContext: &corev1.SecurityContext{
			RunAsNonRoot:             new(true),
			RunAsUser:                new(int64(helperUser)),
			RunAsGroup:               new(int64(helperUser)),
			AllowPrivilegeEscalation: new(false),
			ReadOnlyRootFilesystem:   new(true),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
	}
}
