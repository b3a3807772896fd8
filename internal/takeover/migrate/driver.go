package migrate

import (
	"fmt"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/stack/rollout"
)

// installing are the containers of a driver pod that install something on the node.
func installing() []string {
	return []string{
		"nvidia-driver-ctr", "nvidia-peermem-ctr", "nvidia-fs-ctr", "nvidia-gdrcopy-ctr", "openshift-driver-toolkit-ctr",
	}
}

// notInstalled are variables that change nothing of what a container installs: they name the pod and its node, are
// digests of the rest, which each operator computes in its own way, or name from where packages are downloaded.
func notInstalled() []string {
	return []string{
		"NODE_NAME", "NODE_IP", "POD_UID", rollout.ConfigDigestVariable, labels.VisibleDevices,
		"OPENSHIFT_VERSION", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
	}
}

// notInstalledFiles are the ConfigMaps with a script that probes the driver, and with certificates of a proxy.
func notInstalledFiles() []string { return []string{labels.ProbeScript, labels.TrustedCA} }

// SameDriver reports whether two driver pods, one of NVIDIA's operator and one of this, install the same: the same
// containers with the same images (name and version), variables and files of the user. How the pods are started,
// probed and scheduled does not matter, nor which helper programs they have.
func SameDriver(a, b *corev1.PodSpec) bool { return slices.Equal(installs(a), installs(b)) }

// installs returns what a driver pod installs, sorted.
func installs(pod *corev1.PodSpec) []string {
	var found []string
	for i := range pod.Containers {
		c := &pod.Containers[i]
		if !slices.Contains(installing(), c.Name) {
			continue
		}
		found = append(found, fmt.Sprintf("%s image %s", c.Name, path.Base(c.Image)))
		if c.Name == installing()[0] {
			found = append(found, fmt.Sprintf("%s runs %q", c.Name, slices.Concat(c.Command, c.Args)))
		}
		for _, variable := range c.Env {
			if !slices.Contains(notInstalled(), variable.Name) && variable.ValueFrom == nil {
				found = append(found, fmt.Sprintf("%s variable %s=%s", c.Name, variable.Name, variable.Value))
			}
		}
		for _, from := range c.EnvFrom {
			if from.SecretRef != nil {
				found = append(found, fmt.Sprintf("%s variables of Secret %s", c.Name, from.SecretRef.Name))
			}
			if from.ConfigMapRef != nil {
				found = append(found, fmt.Sprintf("%s variables of ConfigMap %s", c.Name, from.ConfigMapRef.Name))
			}
		}
		found = append(found, files(pod, c)...)
	}
	slices.Sort(found)
	return found
}

// files returns the files that the container gets from ConfigMaps and Secrets, and that change what it installs.
func files(pod *corev1.PodSpec, c *corev1.Container) []string {
	var found []string
	for _, mount := range c.VolumeMounts {
		at := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })
		if at < 0 {
			continue
		}
		source := ""
		switch volume := pod.Volumes[at]; {
		case volume.ConfigMap != nil && !slices.Contains(notInstalledFiles(), volume.ConfigMap.Name):
			source = "ConfigMap " + volume.ConfigMap.Name
		case volume.Secret != nil:
			source = "Secret " + volume.Secret.SecretName
		default:
			continue
		}
		for _, file := range mountedAt(mount, pod.Volumes[at]) {
			found = append(found, fmt.Sprintf("%s file %s of %s", c.Name, file, source))
		}
	}
	return found
}

// mountedAt returns the paths at which the mount has files of the volume, or its own if these are not listed.
func mountedAt(mount corev1.VolumeMount, volume corev1.Volume) []string {
	var items []corev1.KeyToPath
	switch {
	case mount.SubPath != "":
	case volume.Secret != nil:
		items = volume.Secret.Items
	case volume.ConfigMap != nil:
		items = volume.ConfigMap.Items
	}
	if len(items) == 0 {
		return []string{path.Clean(mount.MountPath)}
	}
	var files []string
	for _, item := range items {
		files = append(files, path.Join(mount.MountPath, item.Path))
	}
	return files
}
