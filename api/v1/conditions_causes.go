package v1

// Reasons of a node whose pod of an operand is missing or that cannot be reached, beside PodMissing.
const (
	// ReasonNodeUnreachable: the kubelet no longer answers, so that what the API shows of the node is old.
	ReasonNodeUnreachable = "NodeUnreachable"
	// ReasonUntoleratedTaint: a taint of the node keeps the operand's DaemonSet off it.
	ReasonUntoleratedTaint = "UntoleratedTaint"
	// ReasonQuotaExceeded: a ResourceQuota of the namespace allows no further pod.
	ReasonQuotaExceeded = "QuotaExceeded"
	// ReasonPodSecurityDenied: the Pod Security level of the namespace forbids the operand's pods.
	ReasonPodSecurityDenied = "PodSecurityDenied"
	// ReasonAdmissionDenied: an admission webhook or policy forbids the operand's pods.
	ReasonAdmissionDenied = "AdmissionDenied"
	// ReasonFailedCreate: the DaemonSet controller cannot create the operand's pods for another cause.
	ReasonFailedCreate = "FailedCreate"
)
