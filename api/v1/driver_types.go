package v1

// KernelModuleType is the flavour of the driver's kernel modules.
// +kubebuilder:validation:Enum=auto;open;proprietary
type KernelModuleType string

// The kernel module types of the driver container.
const (
	KernelModuleAuto        KernelModuleType = "auto"
	KernelModuleOpen        KernelModuleType = "open"
	KernelModuleProprietary KernelModuleType = "proprietary"
)

// DriverSpec configures the driver containers.
type DriverSpec struct {
	// Enabled installs the driver as a container. False means that the hosts bring their own.
	// Default true.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// UseNvidiaDriverCRD leaves the driver to objects of the kind NVIDIADriver. Default false. Not supported
	// yet: true is reported as Invalid with reason NotSupportedYet, and the driver that runs is left alone.
	// +optional
	UseNvidiaDriverCRD *bool `json:"useNvidiaDriverCRD,omitempty"`
	// UsePrecompiled takes an image with kernel modules that were built for the kernel of each node, of
	// which the tag names the kernel. version is then the driver's branch, such as 595. Repositories,
	// certificates and secretEnv do not matter then. Default false: the modules are built on the node.
	// +optional
	UsePrecompiled *bool `json:"usePrecompiled,omitempty"`
	// KernelModuleType is the flavour of the kernel modules. Default auto: the driver decides
	// by GPU and branch.
	// +optional
	KernelModuleType KernelModuleType `json:"kernelModuleType,omitempty"`
	// UseOpenKernelModules is deprecated and has no effect: use kernelModuleType.
	// +optional
	UseOpenKernelModules *bool `json:"useOpenKernelModules,omitempty"`
	// StartupProbe overrides the driver container's start-up probe, which by default asks from the beginning
	// until the driver is up, and gives the driver 21 minutes to build and load. Where initialDelaySeconds, periodSeconds or
	// failureThreshold is set, the others default to NVIDIA's: 60, 10 and 120. Exactly these three mean the default.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.successThreshold) || self.successThreshold == 1",fieldPath=".successThreshold",message="must be 1 in a start-up probe"
	StartupProbe *ProbeSpec `json:"startupProbe,omitempty"`
	// LivenessProbe adds a liveness probe to the driver container: when it fails, the kubelet restarts
	// the container, which takes the GPUs away from running work. Parts that are left out are those of
	// Kubernetes. Default none.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.successThreshold) || self.successThreshold == 1",fieldPath=".successThreshold",message="must be 1 in a liveness probe"
	LivenessProbe *ProbeSpec `json:"livenessProbe,omitempty"`
	// ReadinessProbe adds a readiness probe to the driver container. Parts that are left out are those of
	// Kubernetes. Default none: the container is ready once it has started up.
	// +optional
	ReadinessProbe *ProbeSpec `json:"readinessProbe,omitempty"`
	// RDMA configures GPUDirect RDMA, by which network cards reach the memory of the GPUs.
	// +optional
	RDMA          *RDMASpec `json:"rdma,omitempty"`
	ImageSpec     `json:",inline"`
	ContainerSpec `json:",inline"`
	PlacementSpec `json:",inline"`
	// UpgradePolicy configures how the drivers of nodes are replaced by newer ones.
	// +optional
	UpgradePolicy *DriverUpgradePolicySpec `json:"upgradePolicy,omitempty"`
	// Manager configures the init container that unloads an old driver.
	// +optional
	Manager *DriverManagerSpec `json:"manager,omitempty"`
	// RepoConfig names package repositories for the driver container, which it takes the headers of the
	// kernel from.
	// +optional
	RepoConfig *DriverRepoConfigSpec `json:"repoConfig,omitempty"`
	// CertConfig names certificates that the driver container trusts.
	// +optional
	CertConfig *DriverCertConfigSpec `json:"certConfig,omitempty"`
	// LicensingConfig names the licence of a vGPU guest driver.
	// +optional
	LicensingConfig *DriverLicensingConfigSpec `json:"licensingConfig,omitempty"`
	// VirtualTopology configures nvidia-topologyd, which a vGPU guest driver runs.
	// +optional
	VirtualTopology *VirtualTopologyConfigSpec `json:"virtualTopology,omitempty"`
	// KernelModuleConfig names parameters of the kernel modules.
	// +optional
	KernelModuleConfig *KernelModuleConfigSpec `json:"kernelModuleConfig,omitempty"`
	// SecretEnv is the name of a Secret in the operator's namespace. Each of its keys is a variable in
	// the environment of the driver container and of its sidecars nvidia-fs and gdrcopy, such as
	// UBUNTU_PRO_TOKEN.
	// +optional
	SecretEnv ObjectName `json:"secretEnv,omitempty"`
}

// DriverManagerSpec configures k8s-driver-manager.
type DriverManagerSpec struct {
	ImageSpec `json:",inline"`
	// Env adds to the environment of the driver manager.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	Env []EnvVar `json:"env,omitempty"`
}

// RDMASpec configures GPUDirect RDMA.
type RDMASpec struct {
	// Enabled loads nvidia-peermem in a sidecar of the driver. Default false.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// UseHostMOFED takes the network driver of the host rather than that of a container, which the
	// Network Operator runs. It matters only if rdma is enabled. Default false.
	// +optional
	UseHostMOFED *bool `json:"useHostMofed,omitempty"`
}

// DriverRepoConfigSpec names package repositories.
type DriverRepoConfigSpec struct {
	// ConfigMapName is the name of a ConfigMap in the operator's namespace. Each of its keys becomes a
	// file where the operating system of the image has its repositories, such as
	// /etc/apt/sources.list.d.
	// +optional
	ConfigMapName ObjectName `json:"configMapName,omitempty"`
}

// DriverCertConfigSpec names certificates.
type DriverCertConfigSpec struct {
	// Name is the name of a ConfigMap in the operator's namespace. Each of its keys becomes a file where
	// the operating system of the image has its trusted certificates, such as
	// /usr/local/share/ca-certificates.
	// +optional
	Name ObjectName `json:"name,omitempty"`
}

// DriverLicensingConfigSpec names the licence of a vGPU guest driver.
type DriverLicensingConfigSpec struct {
	// SecretName is the name of a Secret in the operator's namespace with the key gridd.conf, which
	// nvidia-gridd reads, and client_configuration_token.tok if nlsEnabled. It wins over configMapName.
	// +optional
	SecretName ObjectName `json:"secretName,omitempty"`
	// ConfigMapName is deprecated: a ConfigMap with the keys of secretName, read if that is empty.
	// +optional
	ConfigMapName ObjectName `json:"configMapName,omitempty"`
	// NLSEnabled mounts the token of the NVIDIA License System, too. Default false.
	// +optional
	NLSEnabled *bool `json:"nlsEnabled,omitempty"`
}

// VirtualTopologyConfigSpec configures nvidia-topologyd.
type VirtualTopologyConfigSpec struct {
	// Config is the name of a ConfigMap in the operator's namespace with the key nvidia-topologyd.conf.
	// +optional
	Config ObjectName `json:"config,omitempty"`
}

// KernelModuleConfigSpec names parameters of the kernel modules.
type KernelModuleConfigSpec struct {
	// Name is the name of a ConfigMap in the operator's namespace with any of the keys nvidia.conf,
	// nvidia-uvm.conf, nvidia-modeset.conf and nvidia-peermem.conf; each line of them is a parameter,
	// which the driver container gives to that module.
	// +optional
	Name ObjectName `json:"name,omitempty"`
}
