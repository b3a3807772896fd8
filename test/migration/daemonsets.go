package migration

import (
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const (
	exporterName  = "nvidia-dcgm-exporter"
	driverCtr     = "nvidia-driver-ctr"
	driverAccount = "nvidia-driver"
	probeScript   = "nvidia-driver-startup-probe"
	pluginImage   = "nvcr.io/nvidia/k8s-device-plugin:v0.20.0"
	toolkitImage  = "nvcr.io/nvidia/k8s/container-toolkit:v1.20.0"
	exporterImage = "nvcr.io/nvidia/k8s/dcgm-exporter:4.6.0-4.8.3-distroless"
	migImage      = "nvcr.io/nvidia/cloud-native/k8s-mig-manager:v0.15.0"
	managerImage  = "nvcr.io/nvidia/cloud-native/k8s-driver-manager:v0.12.0"
)

// daemonSet is what differs between the DaemonSets of NVIDIA's operator.
type daemonSet struct {
	name, operand, account string
	// selector has the labels beside app.
	selector map[string]string
	// inits are the names of the init containers.
	inits      []string
	main       string
	image      string
	entrypoint string
	// plain: without the RuntimeClass nvidia.
	plain bool
	// constrained: with the annotation that names OpenShift's security context constraints.
	constrained bool
	// files are the names of further ConfigMaps that the pods mount.
	files []string
	// also selects nodes beside the deploy label.
	also map[string]string
}

// daemonSets are those of all operands but the driver.
func daemonSets() []daemonSet {
	return []daemonSet{
		{
			name: "nvidia-container-toolkit-daemonset", operand: "container-toolkit", account: "nvidia-container-toolkit",
			inits: []string{"driver-validation"}, main: "nvidia-container-toolkit-ctr", image: toolkitImage, plain: true,
			entrypoint: "nvidia-container-toolkit-entrypoint", constrained: true,
		},
		{
			name: "nvidia-operator-validator", operand: "operator-validator", account: "nvidia-operator-validator",
			selector: map[string]string{"app.kubernetes.io/part-of": "gpu-operator"},
			inits:    []string{"driver-validation", "toolkit-validation", "cuda-validation", "plugin-validation"},
			main:     "nvidia-operator-validator", image: operatorImage,
		},
		{
			name: "nvidia-device-plugin-daemonset", operand: "device-plugin", account: "nvidia-device-plugin",
			inits: []string{"toolkit-validation"}, main: "nvidia-device-plugin", image: pluginImage,
			entrypoint: "nvidia-device-plugin-entrypoint", constrained: true,
		},
		{
			name: exporterName, operand: "dcgm-exporter", account: exporterName,
			inits: []string{"toolkit-validation"}, main: exporterName, image: exporterImage,
			constrained: true,
		},
		{
			name: "gpu-feature-discovery", operand: "gpu-feature-discovery", account: "nvidia-gpu-feature-discovery",
			selector: map[string]string{"app.kubernetes.io/part-of": "nvidia-gpu"},
			inits:    []string{"toolkit-validation"}, main: "gpu-feature-discovery", image: pluginImage,
		},
		{
			name: "nvidia-mig-manager", operand: "mig-manager", account: "nvidia-mig-manager",
			inits: []string{"toolkit-validation"}, main: "nvidia-mig-manager", image: migImage,
			entrypoint: "nvidia-mig-manager-entrypoint",
			files:      []string{"default-mig-parted-config", "default-gpu-clients"},
		},
		{
			name: "nvidia-device-plugin-mps-control-daemon", operand: "device-plugin", account: "nvidia-device-plugin",
			inits: []string{"toolkit-validation", "mps-control-daemon-mounts"}, main: "mps-control-daemon-ctr",
			image: pluginImage, constrained: true, also: map[string]string{"nvidia.com/mps.capable": "true"},
		},
	}
}

// daemonSet returns a DaemonSet as NVIDIA's operator writes it.
func (p *Player) daemonSet(d daemonSet) *appsv1.DaemonSet {
	selector := map[string]string{"app": d.name}
	maps.Copy(selector, d.selector)
	labels := map[string]string{"app.kubernetes.io/managed-by": "gpu-operator", "helm.sh/chart": chartVersion}
	maps.Copy(labels, selector)
	ds := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.namespace, Name: d.name, Labels: labels,
			Annotations: map[string]string{hashAnnotation: "4242"},
		},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: selector},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{
					Labels:      maps.Clone(labels),
					Annotations: map[string]string{"kubectl.kubernetes.io/default-container": d.main},
				},
				Spec: p.pod(d),
			},
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{
				Type:          appsv1.RollingUpdateDaemonSetStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: new(intstr.FromInt32(1))},
			},
		},
	}
	if d.constrained {
		ds.Annotations["openshift.io/scc"] = d.account
	}
	return ds
}

func (p *Player) pod(d daemonSet) corev1.PodSpec {
	pod := corev1.PodSpec{
		ServiceAccountName: d.account, PriorityClassName: "system-node-critical",
		NodeSelector: map[string]string{deployPrefix + d.operand: "true"},
		Tolerations:  []corev1.Toleration{{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists}},
		Containers: []corev1.Container{{
			Name: d.main, Image: d.image, Env: []corev1.EnvVar{{Name: "THEIRS", Value: "1"}},
			SecurityContext: &corev1.SecurityContext{Privileged: new(true)},
		}},
	}
	maps.Copy(pod.NodeSelector, d.also)
	if !d.plain {
		pod.RuntimeClassName = new("nvidia")
	}
	for _, name := range d.inits {
		pod.InitContainers = append(pod.InitContainers, corev1.Container{
			Name: name, Image: operatorImage, Command: []string{"sh", "-c"}, Args: []string{"nvidia-validator"},
		})
	}
	if d.entrypoint != "" {
		source := &corev1.ConfigMapVolumeSource{DefaultMode: new(int32(0o700))}
		source.Name = d.entrypoint
		pod.Volumes = []corev1.Volume{{Name: d.entrypoint, VolumeSource: corev1.VolumeSource{ConfigMap: source}}}
		pod.Containers[0].VolumeMounts = []corev1.VolumeMount{{
			Name: d.entrypoint, MountPath: "/bin/entrypoint.sh", SubPath: "entrypoint.sh", ReadOnly: true,
		}}
	}
	for _, name := range d.files {
		source := &corev1.ConfigMapVolumeSource{}
		source.Name = name
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{ConfigMap: source}})
		pod.Containers[0].VolumeMounts = append(pod.Containers[0].VolumeMounts,
			corev1.VolumeMount{Name: name, MountPath: "/" + name})
	}
	return pod
}
