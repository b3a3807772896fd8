package render

import (
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
)

const (
	caBundleVolume  = "gpu-operator-ca-bundle"
	certificatesEnv = "SSL_CERT_FILE"
	noProxyEnv      = "NO_PROXY"
	// apiServer expands to the address of the API server, which the kubelet sets in every container.
	apiServer = "$(KUBERNETES_SERVICE_HOST)"
)

// applyGlobal applies spec.global to every container: the registry mirror, the proxies and the CA bundle. What the spec
// sets for a single container is already there and takes precedence.
func (r *renderer) applyGlobal(pod *corev1.PodSpec) {
	global := r.plan.Input.Spec.Global
	env := proxyEnv(*global.Proxy)
	bundle := global.CABundle
	manifest.ForEachContainer(pod, func(c *corev1.Container) {
		c.Image = image.Mirror(global.Registry, c.Image)
		addEnv(c, env)
		if bundle.ConfigMapName != "" {
			addEnv(c, []corev1.EnvVar{{Name: certificatesEnv, Value: path.Join(labels.CABundleDir, labels.CABundleFile)}})
			mount := corev1.VolumeMount{Name: caBundleVolume, MountPath: labels.CABundleDir, ReadOnly: true}
			c.VolumeMounts = append(c.VolumeMounts, mount)
		}
	})
	if bundle.ConfigMapName != "" {
		pod.Volumes = append(pod.Volumes, bundleVolume(bundle.ConfigMapName, bundle.Key))
	}
}

// bundleVolume is the volume with the CA bundle of a ConfigMap.
func bundleVolume(configMap, key string) corev1.Volume {
	source := &corev1.ConfigMapVolumeSource{Items: []corev1.KeyToPath{{Key: key, Path: labels.CABundleFile}}}
	source.Name = configMap
	return corev1.Volume{Name: caBundleVolume, VolumeSource: corev1.VolumeSource{ConfigMap: source}}
}

// proxyEnv returns the proxy variables in upper and lower case, as programs read either. The API server is always
// excluded from the proxy: many operands call it, at the address that the kubelet sets.
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

// addEnv adds the variables that the container has in neither upper nor lower case: programs read both, and the user
// may have set one of them.
func addEnv(c *corev1.Container, env []corev1.EnvVar) {
	own := slices.Clone(c.Env)
	for _, variable := range env {
		if !slices.ContainsFunc(own, func(have corev1.EnvVar) bool { return strings.EqualFold(have.Name, variable.Name) }) {
			c.Env = append(c.Env, variable)
		}
	}
}
