package v1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// State is the overall state of the policy, as in NVIDIA's operator.
// +kubebuilder:validation:Enum=ignored;ready;notReady
type State string

// The states of a policy.
const (
	// StateIgnored: an older ClusterPolicy is active.
	StateIgnored State = "ignored"
	// StateReady: every GPU node can be used as the spec requests.
	StateReady State = "ready"
	// StateNotReady: the conditions show what is missing.
	StateNotReady State = "notReady"
)

// ClusterPolicyStatus is the observed state. It lists at most 100 nodes, so that its size is bounded.
type ClusterPolicyStatus struct {
	// State is ready, notReady or ignored.
	// +optional
	State State `json:"state,omitempty"`
	// Namespace of the operator and the operands.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// ObservedGeneration is the generation of the spec that this status is based on, -1 before the first.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions are Ready, AuxiliaryReady, Progressing, Degraded, Error and Stalled.
	//
	// AuxiliaryReady is about operands that are not needed to use GPUs, such as the exporters. Error is the inverse of
	// Ready, for tools written for NVIDIA's operator. Stalled appears where waiting cannot help, for kstatus.
	// UnsupportedFields and DeprecatedFields list such fields of the spec, CRDOutdated appears if the CRD is older than
	// the operator, AdmissionPolicyMissing if the admission policies are not installed, OtherOperatorRunning while
	// NVIDIA's operator is at work, and OutdatedComponent while a component has known vulnerabilities.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Operands are the states of the operands, in the order of their dependencies.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Operands []OperandStatus `json:"operands,omitempty"`
	// NodeSummary counts the GPU nodes.
	// +optional
	NodeSummary *NodeSummary `json:"nodeSummary,omitempty"`
	// Upgrade is the state of the driver upgrades. Absent if no driver has been outdated.
	// +optional
	Upgrade *UpgradeStatus `json:"upgrade,omitempty"`
	// Nodes is the readiness of the GPU nodes, worst first, at most 100.
	//
	// The Node condition nvidia.com/GPUReady has the complete message.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	Nodes []NodeStatus `json:"nodes,omitempty"`
	// Pools are the driver pools: nodes that share one driver image.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Pools []PoolStatus `json:"pools,omitempty"`
	// NodePools are the states of spec.nodePools, in the same order.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	NodePools []NodePoolStatus `json:"nodePools,omitempty"`
}

// OperandState is the state of an operand.
// +kubebuilder:validation:Enum=Ready;Progressing;Degraded;Disabled;NotNeeded;Invalid;Conflict;Error;Waiting
type OperandState string

// The states of an operand.
const (
	// OperandReady: the operand is ready on every node that needs it.
	OperandReady OperandState = "Ready"
	// OperandProgressing: it is not ready on some nodes yet.
	OperandProgressing OperandState = "Progressing"
	// OperandDegraded: it fails on some nodes.
	OperandDegraded OperandState = "Degraded"
	// OperandDisabled: the spec disables it.
	OperandDisabled OperandState = "Disabled"
	// OperandNotNeeded: no node needs it.
	OperandNotNeeded OperandState = "NotNeeded"
	// OperandInvalid: its spec cannot be applied; running pods are left as they are.
	OperandInvalid OperandState = "Invalid"
	// OperandConflict: an object of that name belongs to another owner and is left as it is.
	OperandConflict OperandState = "Conflict"
	// OperandError: a call to the API failed and is retried.
	OperandError OperandState = "Error"
	// OperandWaiting: an operand that it requires is not installed or was not applied, or an object that its spec
	// refers to does not exist, or NVIDIADriver objects declare no driver for some nodes.
	OperandWaiting OperandState = "Waiting"
)

// OperandStatus is the state of one operand.
type OperandStatus struct {
	// Name of the operand, such as driver.
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// State of the operand.
	State OperandState `json:"state"`
	// Desired is the number of nodes that need the operand.
	Desired int32 `json:"desired"`
	// Ready is the number of those nodes on which it is ready.
	Ready int32 `json:"ready"`
	// Version is the tag or digest of the image.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Version string `json:"version,omitempty"`
	// Reason for a state other than Ready, in CamelCase.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Reason string `json:"reason,omitempty"`
	// Message explains the reason.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// NodeSummary counts the GPU nodes.
type NodeSummary struct {
	// Total number of GPU nodes.
	Total int32 `json:"total"`
	// Ready nodes, whose GPUs can be used.
	Ready int32 `json:"ready"`
	// Progressing nodes, which are not ready yet.
	Progressing int32 `json:"progressing"`
	// Degraded nodes, on which something failed.
	Degraded int32 `json:"degraded"`
	// Upgrading nodes, whose driver is outdated or is being upgraded.
	Upgrading int32 `json:"upgrading"`
	// Excluded nodes, which have the label nvidia.com/gpu.deploy.operands=false or are not selected.
	Excluded int32 `json:"excluded"`
	// GPUs of these nodes, without those of nodes that advertise none. Absent if none does.
	// +optional
	GPUs *NodeGPUs `json:"gpus,omitempty"`
	// Listed is the number of nodes in status.nodes.
	Listed int32 `json:"listed"`
	// ReadyOfTotal is ready/total, such as 12/14.
	// +kubebuilder:validation:MaxLength=32
	ReadyOfTotal string `json:"readyOfTotal,omitempty"`
}

// Stage is a part of a node's progress.
// +kubebuilder:validation:Enum=Discovered;Driver;Toolkit;DevicePlugin;Allocatable;Validated
type Stage string

// The stages in order. A node that is not ready is at the first stage that it has not reached.
const (
	StageDiscovered   Stage = "Discovered"
	StageDriver       Stage = "Driver"
	StageToolkit      Stage = "Toolkit"
	StageDevicePlugin Stage = "DevicePlugin"
	StageAllocatable  Stage = "Allocatable"
	StageValidated    Stage = "Validated"
)

// stages in the order in which a node reaches them.
var stages = []Stage{StageDiscovered, StageDriver, StageToolkit, StageDevicePlugin, StageAllocatable, StageValidated}

// Stages returns the stages of a node in the order in which it reaches them.
func Stages() []Stage { return slices.Clone(stages) }

// Index returns the position of the stage in Stages, -1 if it is not in it, such as the empty stage.
func (s Stage) Index() int { return slices.Index(stages, s) }

// Before reports whether a node reaches the stage before the other one.
func (s Stage) Before(other Stage) bool { return s.Index() < other.Index() }

// NodeStatus is the readiness of one GPU node.
type NodeStatus struct {
	// Name of the node.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Ready reports whether the node's GPUs can be used.
	Ready bool `json:"ready"`
	// Stage is the first stage that is not reached, or Validated.
	Stage Stage `json:"stage"`
	// Pool is the driver pool of the node.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Pool string `json:"pool,omitempty"`
	// Operand that delays the node, if it is not ready.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Operand string `json:"operand,omitempty"`
	// Pod of the operand, if it has failed.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Pod string `json:"pod,omitempty"`
	// Reason why the node is not ready, in CamelCase.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Reason string `json:"reason,omitempty"`
	// Message explains the reason.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
	// GPUs of the node, once it advertises them.
	// +optional
	GPUs *NodeGPUs `json:"gpus,omitempty"`
	// Offers is what pods can request if GPUs are shared or partitioned, such as nvidia.com/gpu: 4 x 4 shared = 16.
	//
	// The name of the product follows if it differs, such as NVIDIA-H100-80GB-HBM3-SHARED: GPU Feature Discovery changes
	// it. Where spec.devicePlugin.enabled is false, or the node is opted out of the device plugin, it has what another one
	// offers, which the operator has not validated.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Offers string `json:"offers,omitempty"`
	// Since when the node has not been ready.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// Upgrade of the node's driver, if it is outdated, is being upgraded, or its upgrade has failed.
	// +optional
	Upgrade *NodeUpgradeStatus `json:"upgrade,omitempty"`
}

// PoolStatus is a driver pool.
type PoolStatus struct {
	// Name of the driver pool: operating system, version, architecture, and the node pool if it has its own driver.
	// +kubebuilder:validation:MaxLength=128
	Name string `json:"name"`
	// NodePool is the node pool that the driver is from. Absent if it is from spec.driver.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	NodePool string `json:"nodePool,omitempty"`
	// Nodes is the number of nodes in the driver pool.
	Nodes int32 `json:"nodes"`
	// Ready is the number of those nodes whose GPUs can be used.
	// +optional
	Ready int32 `json:"ready,omitempty"`
	// Image of the driver of this driver pool.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image,omitempty"`
}

// NodePoolStatus is a node pool of spec.nodePools.
type NodePoolStatus struct {
	// Name of the node pool.
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Nodes is the number of GPU nodes in the node pool.
	Nodes int32 `json:"nodes"`
	// Ready is the number of those nodes whose GPUs can be used.
	Ready int32 `json:"ready"`
	// DriverVersion that the spec requests for these nodes. Absent if the operator does not install the driver.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	DriverVersion string `json:"driverVersion,omitempty"`
	// Reason why some nodes of the node pool differ from the spec, in CamelCase.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Reason string `json:"reason,omitempty"`
	// Message explains the reason.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
}
