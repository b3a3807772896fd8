package v1

import (
	corev1 "k8s.io/api/core/v1"
)

// DCGMExporterSpec configures the DCGM exporter. Its hostNetwork is true by default if DCGM_REMOTE_HOSTENGINE_INFO in
// env points to an engine on the host itself.
type DCGMExporterSpec struct {
	// Enabled installs the exporter, which serves GPU metrics on port 9400. Default true.
	// +optional
	Enabled       *bool `json:"enabled,omitempty"`
	ImageSpec     `json:",inline"`
	ContainerSpec `json:",inline"`
	PlacementSpec `json:",inline"`
	// Config selects the metrics.
	// +optional
	Config *DCGMExporterConfigSpec `json:"config,omitempty"`
	// ServiceMonitor of the exporter. Default disabled.
	// +optional
	ServiceMonitor *ServiceMonitorSpec `json:"serviceMonitor,omitempty"`
	// Service configures the Service nvidia-dcgm-exporter.
	// +optional
	Service *DCGMExporterServiceSpec `json:"service,omitempty"`
	// HostPID runs the pods in the host's PID namespace, which some process metrics need. Default false.
	// +optional
	HostPID *bool `json:"hostPID,omitempty"`
	// HPCJobMapping labels metrics with jobs of a workload manager, such as Slurm.
	// +optional
	HPCJobMapping *HPCJobMappingSpec `json:"hpcJobMapping,omitempty"`
	// EnablePodLabels adds the labels of the pod that uses a GPU to its metrics. Default false.
	//
	// The exporter then gets the right to read all pods.
	// +optional
	EnablePodLabels *bool `json:"enablePodLabels,omitempty"`
	// EnablePodUID adds the UID of the pod that uses a GPU to its metrics. Default false.
	//
	// The exporter then gets the right to read all pods.
	// +optional
	EnablePodUID *bool `json:"enablePodUID,omitempty"`
	// PodLabelAllowlistRegex limits enablePodLabels to label keys that match one of these regular expressions. Default
	// all.
	//
	// An expression that contains a comma counts as two. It has no effect without enablePodLabels, which is reported if
	// that is unset.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=4096
	// +kubebuilder:validation:items:XValidation:rule="''.matches(self) in [true, false]",message="must be a regular expression in RE2 syntax"
	PodLabelAllowlistRegex []string `json:"podLabelAllowlistRegex,omitempty"`
}

// DCGMExporterConfigSpec selects the metrics of the DCGM exporter.
type DCGMExporterConfigSpec struct {
	// Name of a ConfigMap in the operator's namespace with the key dcgm-metrics.csv. Default: the list in the image.
	//
	// Each line is one metric: DCGM field, type, help.
	// +optional
	Name ObjectName `json:"name,omitempty"`
}

// DCGMExporterServiceSpec configures the Service of the DCGM exporter.
type DCGMExporterServiceSpec struct {
	// Type of the Service. Default ClusterIP.
	// +optional
	// +kubebuilder:validation:Enum="";ClusterIP;NodePort;LoadBalancer
	Type corev1.ServiceType `json:"type,omitempty"`
	// InternalTrafficPolicy is Cluster (default), or Local to reach only the exporter on the client's node.
	// +optional
	// +kubebuilder:validation:Enum="";Cluster;Local
	InternalTrafficPolicy *corev1.ServiceInternalTrafficPolicy `json:"internalTrafficPolicy,omitempty"`
}

// HPCJobMappingSpec configures the job labels of metrics.
type HPCJobMappingSpec struct {
	// Enabled adds the label hpc_job to the metrics of a GPU. Default false.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// Directory on the host with the job files. Default /var/lib/dcgm-exporter/job-mapping.
	//
	// The workload manager writes one file for each GPU, named by its index, with one job per line. The directory is
	// created if it does not exist. It has no effect without enabled, which is reported if that is unset.
	// +optional
	Directory HostPath `json:"directory,omitempty"`
}
