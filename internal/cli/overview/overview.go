package overview

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// Cluster is what an Overview is computed from.
type Cluster struct {
	// Policy that is active; nil for none.
	Policy *v1.ClusterPolicy
	// Nodes with GPUs.
	Nodes []*corev1.Node
	// Usage of these nodes; nil if the pods are not known.
	Usage *Usage
}

// Overview is the state of the GPUs of a cluster.
type Overview struct {
	// Policy that is active; absent if there is none.
	Policy *Policy `json:"policy,omitempty"`
	// Summary of all nodes.
	Summary Summary `json:"summary"`
	// Nodes with GPUs: those that are not ready first, then by name.
	Nodes []Node `json:"nodes"`
}

// Policy is the active ClusterPolicy.
type Policy struct {
	// Name of the policy.
	Name string `json:"name"`
	// Ready is the status of its condition Ready: True, False or Unknown. Reason and Message are those of it. While
	// another operator is at work, which writes that condition too, it is False, with the reason OtherOperatorRunning.
	Ready   metav1.ConditionStatus `json:"ready"`
	Reason  string                 `json:"reason,omitempty"`
	Message string                 `json:"message,omitempty"`
	// Limits are further causes for which the operator does not do all that the policy requests.
	Limits []Limit `json:"limits,omitempty"`
	// Upgrade is the state of the driver upgrades; absent if no driver has been outdated.
	Upgrade *v1.UpgradeStatus `json:"upgrade,omitempty"`
}

// Limit is a cause for which the operator does not do all that a policy requests.
type Limit struct {
	// Reason is the type of the condition of the policy, and Message the one of it.
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// Summary counts the nodes with GPUs, and their GPUs, without the excluded ones.
type Summary struct {
	// Nodes, and how many of them are ready.
	Nodes      int `json:"nodes"`
	ReadyNodes int `json:"readyNodes"`
	// GPUs, and how many of them pods can get.
	GPUs       int `json:"gpus"`
	UsableGPUs int `json:"usableGPUs"`
	// NodesOfUnknownGPUs is how many nodes have an unknown number of GPUs, of which GPUs counts none.
	NodesOfUnknownGPUs int `json:"nodesOfUnknownGPUs,omitempty"`
	// FreeGPUs are the usable ones that no pod requests, of the nodes that are ready, not cordoned, and whose GPUs are
	// neither shared nor partitioned; absent if the pods are not known.
	FreeGPUs *int64 `json:"freeGPUs,omitempty"`
	// GPUsByClaims are the usable ones that only a DRA driver offers: FreeGPUs has none of these.
	GPUsByClaims int `json:"gpusByClaims,omitempty"`
}

// Of returns the overview of a cluster.
func Of(cluster Cluster) Overview {
	o := Overview{Nodes: []Node{}}
	policy := cluster.Policy
	if policy != nil {
		o.Policy = policyOf(policy)
	}
	specs := specsOf(policy)
	for _, node := range cluster.Nodes {
		o.Nodes = append(o.Nodes, nodeOf(node, policy, specs, cluster.Usage))
	}
	slices.SortFunc(o.Nodes, func(a, b Node) int {
		return cmp.Or(cmp.Compare(rank[a.Ready], rank[b.Ready]), cmp.Compare(a.Name, b.Name))
	})
	o.Summary = summarize(o.Nodes, cluster.Usage != nil)
	return o
}

// rank orders nodes by their readiness.
var rank = map[Readiness]int{NotReady: 0, Unknown: 1, Ready: 2, Excluded: 3}

func policyOf(policy *v1.ClusterPolicy) *Policy {
	p := &Policy{Name: policy.Name, Ready: metav1.ConditionUnknown, Upgrade: policy.Status.Upgrade}
	ready := meta.FindStatusCondition(policy.Status.Conditions, v1.ConditionReady)
	limits := Limits(policy)
	other := slices.IndexFunc(limits, func(l Limit) bool { return l.Reason == v1.ConditionOtherOperatorRunning })
	switch {
	case other >= 0:
		p.Ready, p.Reason, p.Message = metav1.ConditionFalse, limits[other].Reason, limits[other].Message
	case ready == nil:
		p.Message = "the operator has not reported on it yet"
	case ready.ObservedGeneration < policy.Generation:
		p.Message = "the operator has not assessed its current spec yet; before, it was " + ready.Reason + ": " +
			ready.Message
	default:
		p.Ready, p.Reason, p.Message = ready.Status, ready.Reason, ready.Message
	}
	p.Limits = slices.DeleteFunc(limits, func(l Limit) bool { return l.Reason == p.Reason })
	return p
}

// Limits returns why the operator does nothing, or not all, for a policy, whatever its condition Ready says.
func Limits(policy *v1.ClusterPolicy) []Limit {
	var found []Limit
	for _, condition := range policy.Status.Conditions {
		switch condition.Type {
		case v1.ConditionCRDOutdated, v1.ConditionOtherOperatorRunning, v1.ConditionAdmissionPolicyMissing:
			if condition.Status == metav1.ConditionTrue {
				found = append(found, Limit{Reason: condition.Type, Message: condition.Message})
			}
		}
	}
	return found
}

func summarize(nodes []Node, usageKnown bool) Summary {
	s, free := Summary{}, int64(0)
	for i := range nodes {
		n := &nodes[i]
		if n.Ready == Excluded {
			continue
		}
		s.Nodes++
		if n.Ready == Ready {
			s.ReadyNodes++
		}
		if n.GPUs.Total == 0 {
			s.NodesOfUnknownGPUs++
		}
		s.GPUs += n.GPUs.Total
		s.UsableGPUs += n.GPUs.Usable
		if n.ByClaims {
			s.GPUsByClaims += n.GPUs.Usable
		}
		free += n.freeGPUs()
	}
	if usageKnown {
		s.FreeGPUs = &free
	}
	return s
}

// freeGPUs returns how many whole GPUs of the node pods can still get.
func (n *Node) freeGPUs() int64 {
	if n.Ready != Ready || n.Cordoned || n.IsDivided() {
		return 0
	}
	free := int64(0)
	for _, r := range n.Resources {
		if r.Free != nil {
			free += *r.Free
		}
	}
	return min(free, int64(n.GPUs.Usable))
}
