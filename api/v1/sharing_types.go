package v1

// SharingSpec makes several pods share a GPU, by time slices or by the Multi-Process Service (MPS). An empty block
// shares nothing.
//
// GPUs that are shared by time slices have no limits: each pod can use all memory. MPS gives each pod an equal part of
// the memory and of the threads. The node label nvidia.com/device-plugin.config has no effect with this block: use
// nodePools.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.timeSlicing) && has(self.mps))",message="timeSlicing and mps exclude each other: remove one of them"
type SharingSpec struct {
	// TimeSlicing shares GPUs or MIG devices by time slices.
	// +optional
	TimeSlicing *TimeSlicingSpec `json:"timeSlicing,omitempty"`
	// MPS shares GPUs by the Multi-Process Service. MIG devices cannot be shared in this way.
	// +optional
	MPS *MPSSharingSpec `json:"mps,omitempty"`
}

// TimeSlicingSpec shares GPUs or MIG devices by time slices. Without replicas and resourceReplicas it shares nothing.
type TimeSlicingSpec struct {
	// Replicas is how many pods share a GPU, from 2. Less shares nothing.
	//
	// With mig.strategy single, a GPU is a MIG device.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1024
	Replicas int32 `json:"replicas,omitempty"`
	// ResourceReplicas are for certain resources, such as nvidia.com/mig-1g.10gb with mig.strategy mixed.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	ResourceReplicas []ResourceReplicasSpec `json:"resourceReplicas,omitempty"`
	// RenameByDefault advertises shared resources under another name, such as nvidia.com/gpu.shared. Default false.
	// +optional
	RenameByDefault *bool `json:"renameByDefault,omitempty"`
	// FailRequestsGreaterThanOne refuses pods that request more than one share: they would get no more time. Default
	// false.
	// +optional
	FailRequestsGreaterThanOne *bool `json:"failRequestsGreaterThanOne,omitempty"`
}

// ResourceReplicasSpec is a resource that several pods share.
type ResourceReplicasSpec struct {
	// Name of the resource: nvidia.com/gpu, or that of MIG devices.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^nvidia[.]com/(gpu|mig-[0-9a-z.]+)$`
	Name string `json:"name"`
	// Replicas is how many pods share one of them, from 2. Default that of the block.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1024
	Replicas int32 `json:"replicas,omitempty"`
}

// MPSSharingSpec shares GPUs by the Multi-Process Service. Without replicas it shares nothing.
type MPSSharingSpec struct {
	// Replicas is how many pods share a GPU, from 2, each with that part of its memory and threads. Less shares nothing.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1024
	Replicas int32 `json:"replicas,omitempty"`
	// RenameByDefault advertises shared GPUs as nvidia.com/gpu.shared. Default false.
	// +optional
	RenameByDefault *bool `json:"renameByDefault,omitempty"`
	// FailRequestsGreaterThanOne refuses pods that request more than one share. Default true.
	// +optional
	FailRequestsGreaterThanOne *bool `json:"failRequestsGreaterThanOne,omitempty"`
}
