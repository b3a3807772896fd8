package effective

import (
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// image sets the pull policy only: internal/policy/image has the images.
func image(s *v1.ImageSpec) {
	value(&s.ImagePullPolicy, corev1.PullIfNotPresent) // NVIDIA
}

func container(s *v1.ContainerSpec) {
	option(&s.HostNetwork, false) // Kubernetes
}

func serviceMonitor(s *v1.ServiceMonitorSpec, enabled bool) {
	option(&s.Enabled, enabled)
	option(&s.HonorLabels, false) // Prometheus
}
