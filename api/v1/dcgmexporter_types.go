package v1

import (
	corev1 "k8s.io/api/core/v1"
)

// DCGMExporterSpec configures the DCGM exporter. Its hostNetwork is true by default where env leads it to an
// engine on the host itself, by DCGM_REMOTE_HOSTENGINE_INFO.
//
// +kubebuilder:validation:XValidation:rule="!has(self.podLabelAllowlistRegex) || self.podLabelAllowlistRegex.size() == 0 || has(self.enablePodLabels) || oldSelf.optMap(o, has(o.podLabelAllowlistRegex) && !has(o.enablePodLabels)).orValue(false)",optionalOldSelf=true,fieldPath=".podLabelAllowlistRegex",message="has no effect alone: set enablePodLabels to true, or to false to keep it for later"
type DCGMExporterSpec struct {
	// Enabled installs the exporter, which serves metrics of the GPUs on port 9400. Default true.
	// +optional
	Enabled       *bool `json:"enabled,omitempty"`
	ImageSpec     `json:",inline"`
	ContainerSpec `json:",inline"`
	PlacementSpec `json:",inline"`
	// Config chooses the metrics.
	// +optional
	Config *DCGMExporterConfigSpec `json:"config,omitempty"`
	// ServiceMonitor of the exporter. Enabled by default: false.
	// +optional
	ServiceMonitor *ServiceMonitorSpec `json:"serviceMonitor,omitempty"`
	// Service configures the Service nvidia-dcgm-exporter.
	// +optional
	Service *DCGMExporterServiceSpec `json:"service,omitempty"`
	// HostPID runs the exporter's pods among the processes of the host, as some metrics of processes
	// need. Default false.
	// +optional
	HostPID *bool `json:"hostPID,omitempty"`
	// HPCJobMapping labels metrics with the jobs of a workload manager, such as Slurm.
	// +optional
	HPCJobMapping *HPCJobMappingSpec `json:"hpcJobMapping,omitempty"`
	// EnablePodLabels adds the labels of the pod that holds a GPU to its metrics. The exporter may then
	// read all pods. Default false.
	// +optional
	EnablePodLabels *bool `json:"enablePodLabels,omitempty"`
	// EnablePodUID adds the UID of the pod that holds a GPU to its metrics. The exporter may then read all
	// pods. Default false.
	// +optional
	EnablePodUID *bool `json:"enablePodUID,omitempty"`
	// PodLabelAllowlistRegex limits enablePodLabels to the labels whose key one of these regular
	// expressions matches. A comma separates two. Default: all labels.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=4096
	// +kubebuilder:validation:items:XValidation:rule="''.matches(self) in [true, false]",message="must be a regular expression of RE2"
	PodLabelAllowlistRegex []string `json:"podLabelAllowlistRegex,omitempty"`
}

// DCGMExporterConfigSpec chooses the metrics of the DCGM exporter.
type DCGMExporterConfigSpec struct {
	// Name is the name of a ConfigMap in the operator's namespace with the key dcgm-metrics.csv, which
	// has a line for each metric: field of DCGM, type, help. Default: the image's own list.
	// +optional
	Name ObjectName `json:"name,omitempty"`
}

// DCGMExporterServiceSpec configures the Service of the DCGM exporter.
type DCGMExporterServiceSpec struct {
	// Type of the Service. Default ClusterIP.
	// +optional
	// +kubebuilder:validation:Enum="";ClusterIP;NodePort;LoadBalancer
	Type corev1.ServiceType `json:"type,omitempty"`
	// InternalTrafficPolicy: Local leads clients in the cluster only to the exporter on their own node.
	// Default Cluster.
	// +optional
	// +kubebuilder:validation:Enum="";Cluster;Local
	InternalTrafficPolicy *corev1.ServiceInternalTrafficPolicy `json:"internalTrafficPolicy,omitempty"`
}

// HPCJobMappingSpec configures the labels of jobs.
//
// +kubebuilder:validation:XValidation:rule="!has(self.directory) || self.directory == \"\" || has(self.enabled)",fieldPath=".directory",message="has no effect alone: set enabled to true, or to false to keep it for later"
type HPCJobMappingSpec struct {
	// Enabled adds the label hpc_job to the metrics of a GPU. Default false.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// Directory on the host in which the workload manager keeps a file for each GPU, named by its index,
	// with a job in each line. It is created if it is missing. Default /var/lib/dcgm-exporter/job-mapping.
	// +optional
	Directory HostPath `json:"directory,omitempty"`
}
