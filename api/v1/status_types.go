package v1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// State is the verdict on the policy in one word, as NVIDIA's operator has it.
// +kubebuilder:validation:Enum=ignored;ready;notReady
type State string

// The states of a policy.
const (
	// StateIgnored: an older ClusterPolicy is in force.
	StateIgnored State = "ignored"
	// StateReady: what the spec asks for can be used on every GPU node.
	StateReady State = "ready"
	// StateNotReady: something is missing; the conditions say what.
	StateNotReady State = "notReady"
)

// ClusterPolicyStatus is what the operator found. Its size does not grow with the cluster beyond
// 100 nodes.
type ClusterPolicyStatus struct {
	// State is ready, notReady or ignored.
	// +optional
	State State `json:"state,omitempty"`
	// Namespace is where the operator and the operands run.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// ObservedGeneration is the generation of the spec that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions are Ready, AuxiliaryReady (of the operands that are not needed to use GPUs, such as the exporters),
	// Progressing, Degraded and Error (the opposite of Ready, kept for tools that were written for NVIDIA's operator).
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Operands tells the state of each operand, in the order in which they depend on each other.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Operands []OperandStatus `json:"operands,omitempty"`
	// NodeSummary counts the GPU nodes.
	// +optional
	NodeSummary *NodeSummary `json:"nodeSummary,omitempty"`
	// Nodes tells the readiness of each GPU node, worst first: every node of up to 100, of more
	// the worst 100. The whole truth of a node is its condition nvidia.com/GPUReady.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	Nodes []NodeStatus `json:"nodes,omitempty"`
	// Pools tells the driver pools: nodes that can share one driver image.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Pools []PoolStatus `json:"pools,omitempty"`
	// NodePools tells of each pool of spec.nodePools, in their order.
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
	// OperandReady: it is ready on every node that needs it.
	OperandReady OperandState = "Ready"
	// OperandProgressing: it is on its way on some nodes.
	OperandProgressing OperandState = "Progressing"
	// OperandDegraded: it fails on some nodes.
	OperandDegraded OperandState = "Degraded"
	// OperandDisabled: the spec turns it off.
	OperandDisabled OperandState = "Disabled"
	// OperandNotNeeded: no node needs it.
	OperandNotNeeded OperandState = "NotNeeded"
	// OperandInvalid: its spec cannot be carried out; what runs is left alone.
	OperandInvalid OperandState = "Invalid"
	// OperandConflict: an object of its name belongs to somebody else and is left alone.
	OperandConflict OperandState = "Conflict"
	// OperandError: a call to the API failed; it is tried again.
	OperandError OperandState = "Error"
	// OperandWaiting: it waits for another operand that failed to apply.
	OperandWaiting OperandState = "Waiting"
)

// OperandStatus is the state of one operand.
type OperandStatus struct {
	// Name of the operand, such as driver.
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// State of the operand.
	State OperandState `json:"state"`
	// Desired is the number of nodes that need it.
	Desired int32 `json:"desired"`
	// Ready is the number of those nodes on which it is ready.
	Ready int32 `json:"ready"`
	// Version is the tag or digest of its image.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Version string `json:"version,omitempty"`
	// Reason for any other state than Ready, in one word.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Reason string `json:"reason,omitempty"`
	// Message says the same in a sentence.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// NodeSummary counts the GPU nodes.
type NodeSummary struct {
	// Total number of GPU nodes.
	Total int32 `json:"total"`
	// Ready nodes: their GPUs can be used.
	Ready int32 `json:"ready"`
	// Progressing nodes are on their way.
	Progressing int32 `json:"progressing"`
	// Degraded nodes have a failure.
	Degraded int32 `json:"degraded"`
	// Upgrading nodes are ready with an outdated driver, or another operand that is replaced only when
	// its pod is deleted.
	Upgrading int32 `json:"upgrading"`
	// Excluded nodes are kept free of operands by the label nvidia.com/gpu.deploy.operands=false.
	Excluded int32 `json:"excluded"`
	// Listed is the number of nodes in nodes[].
	Listed int32 `json:"listed"`
	// ReadyOfTotal is ready/total, such as 12/14.
	// +kubebuilder:validation:MaxLength=32
	ReadyOfTotal string `json:"readyOfTotal,omitempty"`
}

// Stage is a step of the ladder that a node climbs.
// +kubebuilder:validation:Enum=Discovered;Driver;Toolkit;DevicePlugin;Allocatable;Validated
type Stage string

// The ladder, from the bottom. A node that is not ready is at the first stage that is not reached.
const (
	StageDiscovered   Stage = "Discovered"
	StageDriver       Stage = "Driver"
	StageToolkit      Stage = "Toolkit"
	StageDevicePlugin Stage = "DevicePlugin"
	StageAllocatable  Stage = "Allocatable"
	StageValidated    Stage = "Validated"
)

// stages in the order in which a node reaches them; nothing else lists them.
var stages = []Stage{StageDiscovered, StageDriver, StageToolkit, StageDevicePlugin, StageAllocatable, StageValidated}

// Stages returns the stages of a node in the order in which it reaches them.
func Stages() []Stage { return slices.Clone(stages) }

// Index of the stage in Stages; -1 for one that is not in it, such as the empty one.
func (s Stage) Index() int { return slices.Index(stages, s) }

// Before reports whether a node reaches the stage before the other one.
func (s Stage) Before(other Stage) bool { return s.Index() < other.Index() }

// NodeStatus is the readiness of one GPU node.
type NodeStatus struct {
	// Name of the node.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Ready tells whether the node's GPUs can be used.
	Ready bool `json:"ready"`
	// Stage is the first stage not reached, or Validated.
	Stage Stage `json:"stage"`
	// Pool is the driver pool of the node.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Pool string `json:"pool,omitempty"`
	// Operand that holds up a node which is not ready.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Operand string `json:"operand,omitempty"`
	// Reason why the node is not ready, in one word.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Reason string `json:"reason,omitempty"`
	// Message says the same in a sentence.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Message string `json:"message,omitempty"`
	// Since when the node has not been ready.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
}

// PoolStatus is a driver pool.
type PoolStatus struct {
	// Name of the pool: operating system, version and architecture, and the node pool whose driver it has.
	// +kubebuilder:validation:MaxLength=128
	Name string `json:"name"`
	// NodePool is the pool of spec.nodePools that the driver is of. Absent where it is that of spec.driver.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	NodePool string `json:"nodePool,omitempty"`
	// Nodes is the number of nodes in the pool.
	Nodes int32 `json:"nodes"`
	// Ready is the number of those nodes whose GPUs can be used.
	// +optional
	Ready int32 `json:"ready,omitempty"`
	// Image of the driver in this pool.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image,omitempty"`
}

// NodePoolStatus is a pool of spec.nodePools.
type NodePoolStatus struct {
	// Name of the pool.
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Nodes is the number of GPU nodes that belong to the pool.
	Nodes int32 `json:"nodes"`
	// Ready is the number of those nodes whose GPUs can be used.
	Ready int32 `json:"ready"`
	// DriverVersion is the version of the driver that the spec gives these nodes. Absent where the operator
	// installs none.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	DriverVersion string `json:"driverVersion,omitempty"`
	// Reason why not all nodes of the pool have what the spec says, in one word.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Reason string `json:"reason,omitempty"`
	// Message says the same in a sentence.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
}
