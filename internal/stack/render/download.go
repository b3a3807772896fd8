package render

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
)

// OpenShiftVersionEnv is the variable by which the driver container chooses the package repositories of OpenShift.
const OpenShiftVersionEnv = "OPENSHIFT_VERSION"

// addDownloads adds what the containers of a driver download packages with, as NVIDIA's operator does: the proxy of the
// operator or of the cluster, the certificates for it, and the version of OpenShift. Variables of the spec take
// precedence, each in its container.
//
// It runs after stampDigest: a running driver needs none of it, so neither an update of OpenShift nor another proxy
// makes a driver outdated. New pods get what is current.
func (r *renderer) addDownloads(pod *corev1.PodSpec) {
	if r.step.Operand.Stage == v1.StageDriver {
		in := r.plan.Input
		addProxy(pod, in.DriverProxy())
		for i := range pod.Containers {
			if version := in.OpenShiftCluster.Version; version != "" && pod.Containers[i].Name == r.instance.Main {
				addEnv(&pod.Containers[i], []corev1.EnvVar{{Name: OpenShiftVersionEnv, Value: version}})
			}
		}
	}
	r.mountTrustStores(pod)
}

// addProxy adds the proxy to the containers, but not to the init containers, which download nothing.
func addProxy(pod *corev1.PodSpec, proxy v1.ProxySpec) {
	env := proxyEnv(proxy)
	for i := range pod.Containers {
		addEnv(&pod.Containers[i], env)
	}
}

// mountTrustStores mounts the CA bundle where the programs of an image read it, unless the user has mounted another
// file there: that of the spec, or else that of the cluster.
func (r *renderer) mountTrustStores(pod *corev1.PodSpec) {
	in := r.plan.Input
	fromSpec := in.Spec.Global.CABundle.ConfigMapName != ""
	if !fromSpec && !in.TrustsCluster() {
		return
	}
	mounted := false
	manifest.ForEachContainer(pod, func(c *corev1.Container) {
		file := r.instance.TrustStores[c.Name]
		isThere := func(m corev1.VolumeMount) bool { return m.MountPath == file }
		if file != "" && !slices.ContainsFunc(c.VolumeMounts, isThere) {
			mounted = true
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{
				Name: caBundleVolume, MountPath: file, SubPath: labels.CABundleFile, ReadOnly: true,
			})
		}
	})
	if mounted && !fromSpec {
		pod.Volumes = append(pod.Volumes, bundleVolume(labels.TrustedCA, labels.CABundleFile))
	}
}
