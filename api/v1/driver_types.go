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
	// Enabled installs the driver as a container. If false, the hosts must provide it. Default true.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// UseNvidiaDriverCRD leaves the driver to NVIDIADriver objects. Default false.
	//
	// If true, nothing of spec.driver but enabled applies, and the node pools must have no driver.
	// +optional
	UseNvidiaDriverCRD *bool `json:"useNvidiaDriverCRD,omitempty"`
	// UsePrecompiled uses an image with kernel modules for each kernel; version is then a driver branch, such as 595.
	// Default false.
	//
	// The tag of the image names the kernel of the node. repoConfig, certConfig and secretEnv have no effect then. If
	// false, the modules are built on the node.
	// +optional
	UsePrecompiled *bool `json:"usePrecompiled,omitempty"`
	// KernelModuleType is auto, open or proprietary. Default auto: the driver decides by GPU and branch.
	//
	// If it is unset, KERNEL_MODULE_TYPE or OPEN_KERNEL_MODULES_ENABLED in env sets it.
	// +optional
	KernelModuleType KernelModuleType `json:"kernelModuleType,omitempty"`
	// UseOpenKernelModules is deprecated and has no effect: use kernelModuleType.
	// +optional
	UseOpenKernelModules *bool `json:"useOpenKernelModules,omitempty"`
	// StartupProbe overrides the start-up probe of the driver container. By default the driver has 21 minutes to build and
	// load.
	//
	// The default probe checks from the beginning until the driver is loaded. If initialDelaySeconds, periodSeconds or
	// failureThreshold is set, the others default to NVIDIA's values: 60, 10 and 120. Exactly these three values mean the
	// default.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.successThreshold) || self.successThreshold == 1",fieldPath=".successThreshold",message="must be 1 in a start-up probe"
	StartupProbe *ProbeSpec `json:"startupProbe,omitempty"`
	// LivenessProbe adds a liveness probe to the driver container. Default none.
	//
	// When it fails, the kubelet restarts the container, and running pods lose their GPUs. Absent fields have the
	// defaults of Kubernetes.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.successThreshold) || self.successThreshold == 1",fieldPath=".successThreshold",message="must be 1 in a liveness probe"
	LivenessProbe *ProbeSpec `json:"livenessProbe,omitempty"`
	// ReadinessProbe adds a readiness probe to the driver container. Default none: it is ready once it has started up.
	//
	// Absent fields have the defaults of Kubernetes.
	// +optional
	ReadinessProbe *ProbeSpec `json:"readinessProbe,omitempty"`
	// RDMA configures GPUDirect RDMA, which lets network cards access GPU memory.
	// +optional
	RDMA          *RDMASpec `json:"rdma,omitempty"`
	ImageSpec     `json:",inline"`
	ContainerSpec `json:",inline"`
	PlacementSpec `json:",inline"`
	// UpgradePolicy configures how outdated drivers are replaced.
	// +optional
	UpgradePolicy *DriverUpgradePolicySpec `json:"upgradePolicy,omitempty"`
	// Manager configures the init container that unloads an old driver.
	// +optional
	Manager *DriverManagerSpec `json:"manager,omitempty"`
	// RepoConfig names package repositories for the driver container, which installs kernel headers from them.
	// +optional
	RepoConfig *DriverRepoConfigSpec `json:"repoConfig,omitempty"`
	// CertConfig names certificates that the driver container trusts.
	// +optional
	CertConfig *DriverCertConfigSpec `json:"certConfig,omitempty"`
	// LicensingConfig names the license of a vGPU guest driver.
	// +optional
	LicensingConfig *DriverLicensingConfigSpec `json:"licensingConfig,omitempty"`
	// VirtualTopology configures nvidia-topologyd of a vGPU guest driver.
	// +optional
	VirtualTopology *VirtualTopologyConfigSpec `json:"virtualTopology,omitempty"`
	// KernelModuleConfig names parameters of the kernel modules.
	// +optional
	KernelModuleConfig *KernelModuleConfigSpec `json:"kernelModuleConfig,omitempty"`
	// SecretEnv is a Secret with environment variables for the driver container, such as UBUNTU_PRO_TOKEN. Default none.
	//
	// Each key is a variable. The sidecars nvidia-fs and gdrcopy get them, too. The Secret is in the operator's namespace.
	// +optional
	SecretEnv ObjectName `json:"secretEnv,omitempty"`
}

// DriverManagerSpec configures k8s-driver-manager.
type DriverManagerSpec struct {
	ImageSpec `json:",inline"`
	// Env adds or overrides variables of the driver manager.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	Env []EnvVar `json:"env,omitempty"`
}

// RDMASpec configures GPUDirect RDMA.
type RDMASpec struct {
	// Enabled loads nvidia-peermem in a sidecar of the driver. Default false.
	//
	// If it is unset, GPU_DIRECT_RDMA_ENABLED in driver.env sets it.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// UseHostMOFED uses the host's network driver instead of the Network Operator's container. Default false.
	//
	// It has no effect without rdma.enabled. If it is unset, USE_HOST_MOFED in driver.env sets it.
	// +optional
	UseHostMOFED *bool `json:"useHostMofed,omitempty"`
}

// DriverRepoConfigSpec names package repositories.
type DriverRepoConfigSpec struct {
	// ConfigMapName is a ConfigMap in the operator's namespace with one repository file in each key. Default none.
	//
	// The files are mounted where the operating system of the image reads its repositories, such as
	// /etc/apt/sources.list.d.
	// +optional
	ConfigMapName ObjectName `json:"configMapName,omitempty"`
}

// DriverCertConfigSpec names certificates.
type DriverCertConfigSpec struct {
	// Name of a ConfigMap in the operator's namespace with one certificate file in each key. Default none.
	//
	// The files are mounted where the operating system of the image reads trusted certificates, such as
	// /usr/local/share/ca-certificates.
	// +optional
	Name ObjectName `json:"name,omitempty"`
}

// DriverLicensingConfigSpec names the license of a vGPU guest driver.
type DriverLicensingConfigSpec struct {
	// SecretName is a Secret in the operator's namespace with the key gridd.conf, and client_configuration_token.tok if
	// nlsEnabled.
	//
	// nvidia-gridd reads it. It overrides configMapName.
	// +optional
	SecretName ObjectName `json:"secretName,omitempty"`
	// ConfigMapName is deprecated: use secretName.
	//
	// It is a ConfigMap with the same keys, read if secretName is empty.
	// +optional
	ConfigMapName ObjectName `json:"configMapName,omitempty"`
	// NLSEnabled also mounts the token of the NVIDIA License System. Default: true if the Secret has its key.
	//
	// A rotated token reaches running drivers in place: it makes no driver outdated.
	// +optional
	NLSEnabled *bool `json:"nlsEnabled,omitempty"`
}

// VirtualTopologyConfigSpec configures nvidia-topologyd.
type VirtualTopologyConfigSpec struct {
	// Config is a ConfigMap in the operator's namespace with the key nvidia-topologyd.conf. Default none.
	// +optional
	Config ObjectName `json:"config,omitempty"`
}

// KernelModuleConfigSpec names parameters of the kernel modules.
type KernelModuleConfigSpec struct {
	// Name of a ConfigMap in the operator's namespace with keys such as nvidia.conf, one module parameter per line.
	//
	// The keys are nvidia.conf, nvidia-uvm.conf, nvidia-modeset.conf and nvidia-peermem.conf, one for each module. Default
	// none.
	// +optional
	Name ObjectName `json:"name,omitempty"`
}
