package effective

import (
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

func dcgm(s *v1.DCGMSpec) {
	option(&s.Enabled, false) // NVIDIA's chart; its API has true
}

// dcgmExporter leaves hostNetwork unset: it depends on the engine that env names.
func dcgmExporter(s *v1.DCGMExporterSpec) {
	option(&s.Enabled, true)                        // NVIDIA
	block(&s.Config)                                // no name: the image's own list
	serviceMonitor(block(&s.ServiceMonitor), false) // NVIDIA; its chart has true
	service := block(&s.Service)
	value(&service.Type, corev1.ServiceTypeClusterIP) // Kubernetes
	// Kubernetes; empty means absent
	value(block(&service.InternalTrafficPolicy), corev1.ServiceInternalTrafficPolicyCluster)
	option(&s.HostPID, false) // NVIDIA
	mapping := block(&s.HPCJobMapping)
	option(&mapping.Enabled, false)                                 // NVIDIA
	value(&mapping.Directory, "/var/lib/dcgm-exporter/job-mapping") // NVIDIA
	option(&s.EnablePodLabels, false)                               // NVIDIA
	option(&s.EnablePodUID, false)                                  // NVIDIA
}

// nodeStatusExporter leaves imagePullPolicy unset: it has the validator's image and pull policy.
func nodeStatusExporter(s *v1.NodeStatusExporterSpec) {
	option(&s.Enabled, false)                      // NVIDIA
	serviceMonitor(block(&s.ServiceMonitor), true) // own: NVIDIA's operator always has one
}

func validator(s *v1.ValidatorSpec) {
	for _, check := range []**v1.ValidatorComponentSpec{
		&s.Driver, &s.Toolkit, &s.CUDA, &s.Plugin, &s.VFIOPCI, &s.VGPUManager, &s.VGPUDevices,
	} {
		block(check)
	}
}
