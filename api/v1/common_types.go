package v1

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// ImageSpec names a container image. Each field that is absent gets the operator's default. image alone may also be a
// full reference, to which the driver and its sidecars append the operating system, unless it has a digest.
//
// +kubebuilder:validation:XValidation:rule="!has(self.image) || !self.image.matches('[/:@]') || (self.?repository.orValue(\"\") == \"\" ? self.?version.orValue(\"\") == \"\" : !self.image.matches('[:@]'))",message="image is a full reference: remove repository and version, or set image to the name only"
type ImageSpec struct {
	// Repository is the registry and path, such as nvcr.io/nvidia.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^(([a-zA-Z0-9][-a-zA-Z0-9.]*|[[][0-9a-fA-F:]+[]])(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*)?$')",message="must be a registry and path without https:// or a trailing slash, such as nvcr.io/nvidia"
	Repository string `json:"repository,omitempty"`
	// Image is the image name, or a full reference.
	//
	// With a full reference, repository and version must be absent. With a repository, a name may have slashes.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-zA-Z0-9[][]a-zA-Z0-9._/:@-]*)?$')",message="must be an image name, such as driver, or a full reference"
	Image string `json:"image,omitempty"`
	// Version is a tag, or a digest (sha256:...).
	//
	// A tag may be followed by @ and a digest, which is then the one that is pulled.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches('^(sha256:[0-9a-f]{64}|[a-zA-Z0-9_][-a-zA-Z0-9_.]{0,127}(@sha256:[0-9a-f]{64})?)?$')",message="must be a tag, such as v1.2.3, or a digest: sha256:..."
	Version string `json:"version,omitempty"`
	// ImagePullPolicy defaults to IfNotPresent.
	//
	// It is Always, Never or IfNotPresent. Any other value means IfNotPresent, and is reported.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`
	// ImagePullSecrets names Secrets in the operator's namespace.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	ImagePullSecrets []ObjectName `json:"imagePullSecrets,omitempty"`
}

// IsFullReference reports whether Image alone names the image, with its registry, tag or digest. A name with slashes
// next to a repository is a part of the path.
func (s ImageSpec) IsFullReference() bool {
	return strings.ContainsAny(s.Image, ":@") || s.Repository == "" && strings.Contains(s.Image, "/")
}

// ContainerSpec configures the main containers of an operand.
type ContainerSpec struct {
	// Resources of each container.
	//
	// Init containers are included. containerResources replaces them for single containers.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.requests) || !has(self.limits) || ['cpu', 'memory'].all(k, !(k in self.requests) || !(k in self.limits) || quantity(string(self.requests[k])).compareTo(quantity(string(self.limits[k]))) <= 0)",message="cpu or memory requests exceed limits: lower requests or raise limits"
	Resources *ResourceRequirements `json:"resources,omitempty"`
	// Args replaces the arguments of the main container.
	// +optional
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=131072
	Args []string `json:"args,omitempty"`
	// Env adds or overrides variables of the main container.
	//
	// If a name occurs several times, the last value is used, and the status reports it.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	Env []EnvVar `json:"env,omitempty"`
	// HostNetwork runs the pods in the host network. Default false.
	// +optional
	HostNetwork *bool `json:"hostNetwork,omitempty"`
}

// ResourceRequirements are the compute resources of a container.
type ResourceRequirements struct {
	// Limits is the maximum of each resource.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Limits corev1.ResourceList `json:"limits,omitempty"`
	// Requests is the minimum of each resource.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Requests corev1.ResourceList `json:"requests,omitempty"`
}

// EnvVar is one environment variable.
type EnvVar struct {
	// Name of the variable.
	Name EnvName `json:"name"`
	// Value of the variable.
	// +optional
	// +kubebuilder:validation:MaxLength=131072
	Value string `json:"value,omitempty"`
}

// ProbeSpec overrides fields of a container's probe; absent fields keep the default.
type ProbeSpec struct {
	// InitialDelaySeconds before the first probe.
	// +optional
	// +kubebuilder:validation:Minimum=0
	InitialDelaySeconds int32 `json:"initialDelaySeconds,omitempty"`
	// TimeoutSeconds of one probe.
	// +optional
	// +kubebuilder:validation:Minimum=1
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`
	// PeriodSeconds between two probes.
	// +optional
	// +kubebuilder:validation:Minimum=1
	PeriodSeconds int32 `json:"periodSeconds,omitempty"`
	// SuccessThreshold is how many probes in a row must succeed. Only a readiness probe may have a value other than 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	SuccessThreshold int32 `json:"successThreshold,omitempty"`
	// FailureThreshold is how many probes in a row must fail.
	// +optional
	// +kubebuilder:validation:Minimum=1
	FailureThreshold int32 `json:"failureThreshold,omitempty"`
}
