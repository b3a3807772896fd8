package render

import (
	"path"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// Names and paths as in NVIDIA's pods, in which config-manager of the device plugin does what gpu-node configure does.
const (
	configsVolume = "available-configs"
	configsDir    = "/available-configs"
	chosenVolume  = "config"
	chosenDir     = "/config"
	chosenFile    = "config.yaml"
	// sighup is the number of SIGHUP, on which the programs reload their configuration.
	sighup = 1
)

// addPluginConfig makes the main container read its device plugin configuration.
func (r *renderer) addPluginConfig(template *corev1.PodTemplateSpec) {
	switch config := r.instance.PluginConfig; {
	case config == nil:
	case config.Content != "":
		r.addConfigFile(template, config.Content)
	default:
		r.addConfigManager(&template.Spec, config)
	}
}

// addConfigFile mounts the configuration from an annotation of the pod. So it changes only together with the pods that
// read it, and no other object has to exist.
func (r *renderer) addConfigFile(template *corev1.PodTemplateSpec, content string) {
	if template.Annotations == nil {
		template.Annotations = map[string]string{}
	}
	template.Annotations[labels.PluginConfig] = content
	field := &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['" + labels.PluginConfig + "']"}
	template.Spec.Volumes = append(template.Spec.Volumes, corev1.Volume{
		Name: chosenVolume,
		VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
			Items: []corev1.DownwardAPIVolumeFile{{Path: chosenFile, FieldRef: field}},
		}},
	})
	r.addConfigMounts(&template.Spec, corev1.VolumeMount{Name: chosenVolume, MountPath: chosenDir, ReadOnly: true})
}

// addConfigMounts makes the main container read the configuration, which is in one of the mounts.
func (r *renderer) addConfigMounts(pod *corev1.PodSpec, mounts ...corev1.VolumeMount) {
	for i := range pod.Containers {
		if reader := &pod.Containers[i]; reader.Name == r.instance.Main {
			reader.Env = append(reader.Env, corev1.EnvVar{Name: "CONFIG_FILE", Value: path.Join(chosenDir, chosenFile)})
			reader.VolumeMounts = append(reader.VolumeMounts, mounts...)
		}
	}
}

// addConfigManager makes the main container read the configuration that a label of its node selects. gpu-node configure
// creates a link to it before the program starts. When the label changes, it updates the link and signals the program.
func (r *renderer) addConfigManager(pod *corev1.PodSpec, config *operand.PluginConfig) {
	r.addConfigMounts(pod, configMounts()...)
	once := r.configManagerContainer(labels.ConfigManagerInitContainer, config,
		corev1.EnvVar{Name: "ONESHOT", Value: labels.True}, corev1.EnvVar{Name: "SEND_SIGNAL", Value: labels.False})
	pod.InitContainers = append(pod.InitContainers, once)

	watch := r.configManagerContainer(labels.ConfigManagerContainer, config,
		corev1.EnvVar{Name: "ONESHOT", Value: labels.False}, corev1.EnvVar{Name: "SEND_SIGNAL", Value: labels.True},
		corev1.EnvVar{Name: "SIGNAL", Value: strconv.Itoa(sighup)},
		corev1.EnvVar{Name: "PROCESS_TO_SIGNAL", Value: config.Process})
	// It signals a process of a privileged container, which AppArmor and SELinux deny to a confined one. It needs no
	// other privileges, as both run as root.
	watch.SecurityContext.AppArmorProfile = &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
	watch.SecurityContext.SELinuxOptions = &corev1.SELinuxOptions{Type: "spc_t"}
	pod.Containers = append(pod.Containers, watch)

	if !pod.HostPID {
		pod.ShareProcessNamespace = new(true)
	}
	// It watches its node.
	pod.AutomountServiceAccountToken = new(true)
	pod.Volumes = append(pod.Volumes,
		corev1.Volume{Name: configsVolume, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: config.ConfigMap},
		}}},
		corev1.Volume{Name: chosenVolume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
	)
}

// contents identifies what the pods read beside their spec: the user's ConfigMaps and Secrets, and the device plugin's
// configuration in their annotation.
func (r *renderer) contents() string {
	referenced := r.plan.InputForNodePool(&r.step.Operand, r.instance.NodePool).ContentDigest(&r.step.Operand)
	if config := r.instance.PluginConfig; config != nil {
		return referenced + config.Content
	}
	return referenced
}

// configMounts are the mounts with all configurations, and with the link to the selected one.
func configMounts() []corev1.VolumeMount {
	return []corev1.VolumeMount{
		{Name: configsVolume, MountPath: configsDir, ReadOnly: true},
		{Name: chosenVolume, MountPath: chosenDir},
	}
}

// configManagerContainer runs gpu-node configure with the name and the variables of NVIDIA's config-manager. It is
// unprivileged: it calls the API server and creates a link.
func (r *renderer) configManagerContainer(
	name string, config *operand.PluginConfig, more ...corev1.EnvVar,
) corev1.Container {
	container := r.helperContainer(name, labels.ConfigureCommand)
	// As root, so that it may signal a process of root's without a capability.
	container.SecurityContext.RunAsNonRoot, container.SecurityContext.RunAsGroup = nil, nil
	container.SecurityContext.RunAsUser = new(int64(0))
	container.Env = append(container.Env, []corev1.EnvVar{
		{
			Name:      "NODE_NAME",
			ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}},
		},
		{Name: "NODE_LABEL", Value: labels.DevicePluginConfig},
		{Name: "CONFIG_FILE_SRCDIR", Value: configsDir},
		{Name: "CONFIG_FILE_DST", Value: path.Join(chosenDir, chosenFile)},
		{Name: "DEFAULT_CONFIG", Value: config.Default},
		// Without a label and a default, a node gets an empty configuration.
		{Name: "FALLBACK_STRATEGIES", Value: "empty"},
	}...)
	container.Env = append(container.Env, more...)
	container.VolumeMounts = configMounts()
	return container
}
