package render

import (
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/digest"
	"github.com/clusterpolicy/gpu-operator/internal/image"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
)

const (
	caBundleVolume  = "gpu-operator-ca-bundle"
	certificatesEnv = "SSL_CERT_FILE"
	noProxyEnv      = "NO_PROXY"
	// apiServer is the address by which pods call the API, as the kubelet tells every container.
	apiServer = "$(KUBERNETES_SERVICE_HOST)"
)

// global gives every container of the pod what spec.global says: images from a mirror, proxies, and the
// certificates to trust. What the spec says of a container itself has been added before, and wins.
func (r *renderer) applyGlobal(pod *corev1.PodSpec) {
	global := r.plan.Input.Spec.Global
	env := proxyEnv(*global.Proxy)
	bundle := global.CABundle
	forEachContainer(pod, func(c *corev1.Container) {
		c.Image = image.Mirror(global.Registry, c.Image)
		addEnv(c, env)
		if bundle.ConfigMapName != "" {
			addEnv(c, []corev1.EnvVar{{Name: certificatesEnv, Value: path.Join(labels.CABundleDir, labels.CABundleFile)}})
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: caBundleVolume, MountPath: labels.CABundleDir, ReadOnly: true})
		}
	})
	if bundle.ConfigMapName != "" {
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: caBundleVolume, VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: bundle.ConfigMapName},
				Items:                []corev1.KeyToPath{{Key: bundle.Key, Path: labels.CABundleFile}},
			},
		}})
	}
}

// proxyEnv are the variables of the proxies, in the capital letters that some programs read and in the
// small ones that others do. The API server is never behind a proxy: many operands call it, by the address
// that the kubelet gives them.
func proxyEnv(proxy v1.ProxySpec) []corev1.EnvVar {
	if proxy == (v1.ProxySpec{}) {
		return nil
	}
	var env []corev1.EnvVar
	add := func(name, value string) {
		if value != "" {
			env = append(env, corev1.EnvVar{Name: name, Value: value}, corev1.EnvVar{Name: strings.ToLower(name), Value: value})
		}
	}
	add("HTTP_PROXY", proxy.HTTPProxy)
	add("HTTPS_PROXY", proxy.HTTPSProxy)
	add(noProxyEnv, strings.TrimPrefix(strings.TrimRight(proxy.NoProxy, ", ")+","+apiServer, ","))
	return env
}

// addEnv adds variables that the container has in neither capital nor small letters: a program reads both,
// and one of them is what the user says of this container.
func addEnv(c *corev1.Container, env []corev1.EnvVar) {
	own := slices.Clone(c.Env)
	for _, variable := range env {
		if !slices.ContainsFunc(own, func(have corev1.EnvVar) bool { return strings.EqualFold(have.Name, variable.Name) }) {
			c.Env = append(c.Env, variable)
		}
	}
}

// digestWithRegistry is the digest of a pod whose helper image comes from the mirror, by the digest of its template. That
// image is left out of the digest, so that a new release replaces no pod; where it comes from counts, or pods would go
// on pulling it from a registry that the spec no longer names.
func (r *renderer) digestWithRegistry(pod *corev1.PodSpec, template string) string {
	registry, found := r.plan.Input.Spec.Global.Registry, false
	forEachContainer(pod, func(c *corev1.Container) { found = found || c.Image == r.context.Helper.Image })
	if registry == "" || !found {
		return template
	}
	return digest.Of(template + " " + registry)
}
