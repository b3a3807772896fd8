package operand

import (
	"fmt"
	"slices"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
)

// WorkloadOf returns the workload that the node is served for. Without spec.sandboxWorkloads.enabled it is containers,
// whatever the node's label. With it, the default of the spec applies if the label is missing or names no workload.
func (in Input) WorkloadOf(node nodeinfo.Facts) nodeinfo.Workload {
	sandbox := in.Spec.SandboxWorkloads
	if !*sandbox.Enabled {
		return nodeinfo.WorkloadContainer
	}
	for _, workload := range []nodeinfo.Workload{node.Workload, nodeinfo.Workload(sandbox.DefaultWorkload)} {
		if slices.Contains(nodeinfo.Workloads(), workload) {
			return workload
		}
	}
	return nodeinfo.WorkloadContainer
}

// UnknownWorkload describes the node's label of its workload if that names none, or is not read, with the workload that
// the node is served for instead. Empty if the node is served for the one that it names, or refused because of it.
func (in Input) UnknownWorkload(node nodeinfo.Facts) string {
	served := in.WorkloadOf(node)
	if node.Workload == "" || node.Workload == served {
		return ""
	}
	why := "is not read without spec.sandboxWorkloads.enabled"
	if known := nodeinfo.Workloads(); !slices.Contains(known, node.Workload) {
		why = fmt.Sprintf("is none of %q", known)
	}
	return fmt.Sprintf("label %s is %q, which %s: the node is served for workload %s",
		labels.GPUWorkload, node.Workload, why, served)
}

// CheckWorkloadSupported refuses a node for virtual machines, as they are not supported. Its decision is Absent if
// daemonsets.nodeSelector does not select the node. Every other node is served.
func (in Input) CheckWorkloadSupported(node nodeinfo.Facts) Decision {
	workload := in.WorkloadOf(node)
	if workload == nodeinfo.WorkloadContainer {
		return Accept()
	}
	if selected := in.Selects(&Operand{}, node); selected.Choice != Install {
		return selected
	}
	return Refuse(v1.ReasonNotSupportedYet, fmt.Sprintf("workload %s is not supported yet: label the node %s=%s",
		workload, labels.GPUWorkload, v1.WorkloadContainer))
}

// PodSecurity reports whether the operator labels its namespace for Pod Security Admission.
func (in Input) PodSecurity() bool { return *in.Spec.PSA.Enabled }

// ContainerNodes returns the nodes that are served for containers.
func (in Input) ContainerNodes(nodes []nodeinfo.Facts) []nodeinfo.Facts {
	return slices.DeleteFunc(slices.Clone(nodes), func(node nodeinfo.Facts) bool {
		return in.WorkloadOf(node) != nodeinfo.WorkloadContainer
	})
}
