package effective

import (
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// images: internal/image fills in the image itself.
func images(specs ...*v1.ImageSpec) {
	for _, s := range specs {
		value(&s.ImagePullPolicy, corev1.PullIfNotPresent) // NVIDIA
	}
}

func container(s *v1.ContainerSpec) {
	option(&s.HostNetwork, false) // Kubernetes
}

func driverManager(s *v1.DriverManagerSpec) {
	images(&s.ImageSpec)
}

func serviceMonitor(s *v1.ServiceMonitorSpec, enabled bool) {
	option(&s.Enabled, enabled)
	option(&s.HonorLabels, false) // Prometheus
}
