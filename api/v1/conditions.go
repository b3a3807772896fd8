package v1

// Condition types of a ClusterPolicy.
const (
	// ConditionReady: every GPU node can be used as the spec says.
	ConditionReady = "Ready"
	// ConditionAuxiliaryReady: the operands that are not needed to use GPUs, such as the exporters, are ready on every node
	// that needs them. Ready does not depend on it, but for a spec of theirs that is wrong and objects that cannot be
	// applied.
	ConditionAuxiliaryReady = "AuxiliaryReady"
	// ConditionProgressing: some node or operand is on its way.
	ConditionProgressing = "Progressing"
	// ConditionDegraded: something failed and will not get better by waiting.
	ConditionDegraded = "Degraded"
	// ConditionError is the opposite of Ready, as NVIDIA's operator has it.
	ConditionError = "Error"
	// ConditionCRDOutdated: the cluster's CustomResourceDefinition lacks fields of this operator, so that the
	// API server drops them. Absent otherwise; it is its own reason, and that of the Event of a policy for which nothing
	// is changed, as it may have lost some.
	ConditionCRDOutdated = "CRDOutdated"
)

// Reasons of the conditions of a ClusterPolicy, by precedence.
const (
	// ReasonReconciled: all is as the spec says.
	ReasonReconciled = "Reconciled"
	// ReasonNoGPUNodes: nothing to do, as no node has a GPU. Ready is True.
	ReasonNoGPUNodes = "NoGPUNodes"
	// ReasonNodeDiscoveryMissing: no node has ever had a discovery label, so that nobody knows
	// which nodes have GPUs.
	ReasonNodeDiscoveryMissing = "NodeDiscoveryMissing"
	// ReasonInvalidSpec: the spec contradicts itself or asks for what cannot be done.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonNotSupportedYet: the spec asks for what this version does not do.
	ReasonNotSupportedYet = "NotSupportedYet"
	// ReasonConflict: an object that the operator needs belongs to somebody else.
	ReasonConflict = "Conflict"
	// ReasonReconcileFailed: a call to the API failed.
	ReasonReconcileFailed = "ReconcileFailed"
	// ReasonAltered: an object that the operator wrote was changed by an admission webhook or policy, or by another
	// writer at once.
	ReasonAltered = "Altered"
	// ReasonPlacementRepaired: somebody had changed on which nodes the pods of a DaemonSet run, and the operator has set
	// it right. Of an Event alone.
	ReasonPlacementRepaired = "PlacementRepaired"
	// ReasonAssessing: not all GPU nodes are assessed yet by the spec as it is now. It is a reason of Progressing, and of
	// Ready until that has another.
	ReasonAssessing = "Assessing"
	// ReasonOperandFailed: an operand fails on some node.
	ReasonOperandFailed = "OperandFailed"
	// ReasonOperandNotReady: some operand is not ready on all its nodes yet.
	ReasonOperandNotReady = "OperandNotReady"
	// ReasonUpgradePending: the driver on some nodes is older than the spec.
	ReasonUpgradePending = "UpgradePending"
	// ReasonPaused: spec.paused keeps the operator from writing anything. Ready is what the nodes say.
	ReasonPaused = "Paused"
	// ReasonIgnored: an older ClusterPolicy is in force.
	ReasonIgnored = "Ignored"
	// ReasonNone: the condition is False and there is nothing to say.
	ReasonNone = "None"
)

// Reasons of an operand that is not Ready, beside those above.
const (
	// ReasonDisabledBySpec: its block says enabled: false.
	ReasonDisabledBySpec = "DisabledBySpec"
	// ReasonNotScheduled: fewer nodes run it than need it.
	ReasonNotScheduled = "NotScheduled"
	// ReasonWaitingForOperand: another operand comes first.
	ReasonWaitingForOperand = "WaitingForOperand"
	// ReasonReferenceMissing: an object that the spec names does not exist, or lacks a key.
	ReasonReferenceMissing = "ReferenceMissing"
	// ReasonFenceMissing: the admission policy that bounds what its pods write on nodes is not installed.
	ReasonFenceMissing = "AdmissionPolicyMissing"
	// ReasonRollingOut: its DaemonSet has not been taken up by the cluster yet.
	ReasonRollingOut = "RollingOut"
)

// Reasons of a node that is not ready, in nodes[] and in the condition nvidia.com/GPUReady. A
// failing container adds the kubelet's reasons: CrashLoopBackOff, ImagePullBackOff and so on.
const (
	// ReasonGPUReady: the GPUs of the node can be used.
	ReasonGPUReady = "GPUReady"
	// ReasonDiscoveryLabelsMissing: discovery labels that the node had are away. Its operands stay for now, and
	// GPUs that could be used still can.
	ReasonDiscoveryLabelsMissing = "DiscoveryLabelsMissing"
	// ReasonStartupTaint: the GPUs of the node can be used, and a start-up taint still keeps pods off it.
	ReasonStartupTaint = "StartupTaint"
	// ReasonFactsMissing: a discovery label that the driver image is chosen by is missing.
	ReasonFactsMissing = "FactsMissing"
	// ReasonDriverToolkitMissing: OpenShift has no driver toolkit for the release of the node's Red Hat CoreOS.
	ReasonDriverToolkitMissing = "DriverToolkitMissing"
	// ReasonExcluded: nvidia.com/gpu.deploy.operands=false keeps the operands off the node. Of a policy:
	// off all GPU nodes; Ready is True.
	ReasonExcluded = "Excluded"
	// ReasonNotSelected: a nodeSelector of the spec keeps an operand off the node, or all of them.
	ReasonNotSelected = "NotSelected"
	// ReasonOperandPaused: a deploy label of the node has another value than true.
	ReasonOperandPaused = "OperandPaused"
	// ReasonPodMissing: the node has no pod of an operand that it needs.
	ReasonPodMissing = "PodMissing"
	// ReasonPodPending: a pod is not scheduled or not admitted.
	ReasonPodPending = "PodPending"
	// ReasonStarting: a pod is on its way.
	ReasonStarting = "Starting"
	// ReasonContainerFailed: a container ended with an error.
	ReasonContainerFailed = "ContainerFailed"
	// ReasonNotAllocatable: the kubelet advertises no GPU that can be allocated.
	ReasonNotAllocatable = "NotAllocatable"
	// ReasonNodeNotReady: the kubelet does not answer.
	ReasonNodeNotReady = "NodeNotReady"
)
