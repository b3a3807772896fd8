package overview

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/health/gpuhealth"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
)

// Readiness is whether the GPUs of a node can be used.
type Readiness string

// The readiness of a node is the status of its condition nvidia.com/GPUReady, unless a user has excluded the node.
const (
	Ready    Readiness = "True"
	NotReady Readiness = "False"
	Unknown  Readiness = "Unknown"
	Excluded Readiness = "Excluded"
)

// Node is one node with GPUs.
type Node struct {
	// Name of the node.
	Name string `json:"name"`
	// Ready reports whether its GPUs can be used. Since when that is so.
	Ready Readiness    `json:"ready"`
	Since *metav1.Time `json:"since,omitempty"`
	// Stage is the first one that the node has not reached, or Validated; empty while the operator has not reported.
	Stage v1.Stage `json:"stage,omitempty"`
	// Operand that delays the node; empty if none does.
	Operand string `json:"operand,omitempty"`
	// Reason and Message of the condition; empty for a node without limits.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// GPUs of the node, and those that pods can get.
	GPUs GPUs `json:"gpus"`
	// Resources that the node advertises, by name.
	Resources []Resource `json:"resources,omitempty"`
	// ByClaims: a DRA driver alone offers the GPUs, by claims, which are not read.
	ByClaims bool `json:"byClaims,omitempty"`
	// Product is the model of the GPUs.
	Product string `json:"product,omitempty"`
	// MIG is the layout that is requested and its state, where the node has one.
	MIG *MIG `json:"mig,omitempty"`
	// Sharing is how a GPU is shared, such as time-slicing x4.
	Sharing string `json:"sharing,omitempty"`
	// Driver is the version of the driver.
	Driver string `json:"driver,omitempty"`
	// Upgrade is the state of its driver's upgrade, such as drain-required; empty if there has been none.
	Upgrade string `json:"upgrade,omitempty"`
	// Health is what the health agent reports, if it is not well: the reason of the condition nvidia.com/GPUHealthy.
	Health string `json:"health,omitempty"`
	// Cordoned: new pods are not scheduled on the node.
	Cordoned bool `json:"cordoned,omitempty"`
}

// GPUs counts GPUs, whole ones however they are shared.
type GPUs struct {
	Total  int `json:"total"`
	Usable int `json:"usable"`
}

// Resource is an extended resource of GPUs.
type Resource struct {
	// Name, such as nvidia.com/gpu or nvidia.com/mig-1g.10gb.
	Name string `json:"name"`
	// Allocatable is how many of it pods can get together.
	Allocatable int64 `json:"allocatable"`
	// Free is how many of these no pod requests; absent if the pods are not known.
	Free *int64 `json:"free,omitempty"`
}

// MIG is the MIG layout of a node.
type MIG struct {
	// Layout is the name that the label nvidia.com/mig.config requests.
	Layout string `json:"layout"`
	// State is what the MIG manager reports: pending, rebooting, success or failed; empty if nothing.
	State string `json:"state,omitempty"`
}

// IsDivided reports whether a device that the node advertises is less than a whole GPU.
func (n *Node) IsDivided() bool {
	partition := func(r Resource) bool { return strings.HasPrefix(r.Name, labels.ResourceMIGPrefix) }
	return n.Sharing != "" || strings.Contains(n.Product, labels.ProductMIG) || slices.ContainsFunc(n.Resources, partition)
}

func nodeOf(node *corev1.Node, policy *v1.ClusterPolicy, specs specs, usage *Usage) Node {
	record := assess.RecordOf(node)
	n := Node{
		Name: node.Name, Ready: Unknown, Cordoned: node.Spec.Unschedulable,
		Product: node.Labels[labels.GPUProduct], Driver: labels.DriverOf(node.Labels), Sharing: sharingOf(node.Labels),
		Upgrade: node.Labels[labels.UpgradeState],
	}
	if layout := node.Labels[labels.MIGConfig]; layout != "" {
		n.MIG = &MIG{Layout: layout, State: node.Labels[labels.MIGConfigState]}
	}
	n.Resources = Resources(node, usage)
	n.addCondition(assess.GPUReadyCondition(node), record)
	n.ByClaims = record.ByClaims && n.Ready == Ready
	n.GPUs = countGPUs(node, specs, n.ByClaims)
	if n.Stage != "" && n.Stage.Before(v1.StageAllocatable) {
		n.GPUs.Usable = 0
	}
	n.addStatus(policy)
	if healthy := assess.GPUHealthyCondition(node); healthy != nil && healthy.Status != corev1.ConditionTrue {
		n.Health = healthy.Reason
	}
	return n
}

// countGPUs counts the GPUs of a node that the policy's status does not list. It lists those on which something is
// wrong first. A node that offers none has those that were last counted.
func countGPUs(node *corev1.Node, specs specs, byClaims bool) GPUs {
	report, _ := gpuhealth.Decode(node.Annotations[labels.GPUHealth]) // The condition reports a malformed one.
	countsBus, replicas := false, 0
	if spec, known := specs.of(node); known {
		countsBus, replicas = spec.NodeDiscovery.Mode != v1.DiscoveryNFD, spec.GPUReplicas()
	}
	counted, existing := readiness.CountGPUs(node, countsBus, replicas), readiness.ClaimableGPUs(node, countsBus)
	switch {
	case byClaims:
		counted = existing
	case counted.Total == 0:
		counted.Total = existing.Total
	}
	counted = counted.WithFaults(report)
	return GPUs{Total: counted.Total, Usable: counted.Usable}
}

// specs are the effective specs of a policy by the name of the node pool that overrides them; empty for no pool. There
// are none without a policy.
type specs map[string]effective.Spec

func specsOf(policy *v1.ClusterPolicy) specs {
	if policy == nil {
		return nil
	}
	base := effective.Of(policy.Spec)
	all := specs{"": base}
	for _, nodePool := range policy.Spec.NodePools {
		all[nodePool.Name] = base.ForNodePool(nodePool)
	}
	return all
}

// of returns the spec for a node, with the overrides of the node pool that the operator has labelled it with.
func (s specs) of(node *corev1.Node) (spec effective.Spec, known bool) {
	if spec, known = s[node.Labels[labels.NodePool]]; known {
		return spec, true
	}
	spec, known = s[""]
	return spec, known
}

// addCondition takes over the condition nvidia.com/GPUReady and the record of the node.
func (n *Node) addCondition(condition *corev1.NodeCondition, record assess.Record) {
	if condition == nil {
		n.Message = "the operator has not reported on the node"
		return
	}
	n.Ready = Readiness(condition.Status)
	n.Since = &condition.LastTransitionTime
	n.Message = strings.TrimPrefix(condition.Message, n.Name+": ")
	switch {
	case condition.Reason == v1.ReasonExcluded || condition.Reason == v1.ReasonNotSelected:
		n.Ready, n.Reason = Excluded, condition.Reason
	case n.Ready == Ready:
		n.Stage = v1.StageValidated
		if condition.Reason != v1.ReasonGPUReady {
			n.Reason = condition.Reason
		}
	default:
		n.Reason = condition.Reason
		n.Stage, n.Operand, n.Message = record.Cause(n.Message)
	}
}

// addStatus takes over what the policy's status has of the node: its GPUs, and the upgrade, of which it states what the
// label does not.
func (n *Node) addStatus(policy *v1.ClusterPolicy) {
	if policy == nil {
		return
	}
	i := slices.IndexFunc(policy.Status.Nodes, func(s v1.NodeStatus) bool { return s.Name == n.Name })
	if i < 0 {
		return
	}
	listed := &policy.Status.Nodes[i]
	if n.Stage == "" && n.Ready != Excluded {
		// An operator without the record has written the condition.
		n.Stage, n.Operand = listed.Stage, listed.Operand
	}
	if listed.GPUs != nil {
		n.GPUs = GPUs{Total: int(listed.GPUs.Total), Usable: int(listed.GPUs.Usable)}
	}
	if listed.Upgrade != nil {
		n.Upgrade = cmp.Or(listed.Upgrade.State, n.Upgrade)
	}
}

// Resources returns what a node offers, by name; usage may be nil.
func Resources(node *corev1.Node, usage *Usage) []Resource {
	var found []Resource
	for name, allocatable := range node.Status.Allocatable {
		if !readiness.Advertises(node, name) {
			continue
		}
		r := Resource{Name: string(name), Allocatable: allocatable.Value()}
		if usage != nil {
			free := max(r.Allocatable-usage.Of(node.Name, name), 0)
			r.Free = &free
		}
		found = append(found, r)
	}
	slices.SortFunc(found, func(a, b Resource) int { return cmp.Compare(a.Name, b.Name) })
	return found
}

// sharingOf returns how a GPU is shared, by the labels of GPU Feature Discovery; empty if it is not.
func sharingOf(all map[string]string) string {
	strategy := all[labels.GPUSharing]
	if strategy == "" || strategy == "none" {
		return ""
	}
	return fmt.Sprintf("%s x%s", strategy, all[labels.GPUReplicas])
}
