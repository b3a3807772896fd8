package preview

import (
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade/gpuuse"
)

// Upgrades are the driver upgrades that would follow.
type Upgrades struct {
	// Nodes whose driver would be outdated, by round, those that are held last, and then by name.
	Nodes []NodeUpgrade `json:"nodes"`
}

// NodeUpgrade is the upgrade of one node.
type NodeUpgrade struct {
	Name string `json:"name"`
	// Round in which the node is upgraded, from 1; 0 if it is held.
	Round int `json:"round"`
	// Reason, of package api/v1, and Message explain why the node is held.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Cordoned: others have cordoned the node, which stays so.
	Cordoned bool `json:"cordoned,omitempty"`
	// Evicted are the pods with GPUs, as namespace/name. Blocked are those of them that cannot be evicted now, and Jobs
	// the pods that are waited for first.
	Evicted []string  `json:"evicted,omitempty"`
	Blocked []Blocked `json:"blocked,omitempty"`
	Jobs    []string  `json:"jobs,omitempty"`
}

// Blocked is a pod that cannot be evicted.
type Blocked struct {
	Pod     string `json:"pod"`
	Message string `json:"message"`
}

// Happen reports whether any node is upgraded.
func (u *Upgrades) Happen() bool { return u.Rounds() > 0 }

// Rounds returns the number of rounds.
func (u *Upgrades) Rounds() int {
	last := 0
	for i := range u.Nodes {
		last = max(last, u.Nodes[i].Round)
	}
	return last
}

// Held returns the number of nodes that are held.
func (u *Upgrades) Held() int {
	held := 0
	for i := range u.Nodes {
		if u.Nodes[i].Round == 0 {
			held++
		}
	}
	return held
}

// upgradesOf returns the upgrades of the nodes with the DaemonSets as rendered; one that is not rendered stays.
func upgradesOf(
	c *Cluster, nodesNow []*corev1.Node, p plan.Plan, rendered map[string]*appsv1.DaemonSet, now time.Time,
) (Upgrades, error) {
	daemonSets := c.daemonSets()
	maps.Copy(daemonSets, rendered)
	o := &observer{cluster: c, labelled: nodesNow, plan: p, daemonSets: daemonSets, pods: podsByNode(c), now: now}
	nodes := o.nodes()
	simulated := simulation{cluster: upgrade.Cluster{
		Now: now, Policies: map[string]upgrade.Policy{"": observe.UpgradePolicy(*p.Input.Spec.Driver.UpgradePolicy, 0, 0)},
		Slots: c.slots(),
	}}
	for i := range nodes {
		simulated.cluster.Policies[nodes[i].Group] = observe.UpgradePolicy(*nodes[i].spec.Driver.UpgradePolicy, 0, 0)
		simulated.cluster.Nodes = append(simulated.cluster.Nodes, nodes[i].Node)
	}
	simulated.run()
	found := Upgrades{Nodes: []NodeUpgrade{}}
	for i := range nodes {
		node := simulated.result(nodes[i].Name)
		if node == nil {
			continue
		}
		node.Cordoned = nodes[i].Unschedulable && (nodes[i].Record == nil || !nodes[i].Record.Cordoned) &&
			!nodes[i].MIG.Drain.Cordons(nodes[i].UID)
		if node.Round > 0 {
			if err := o.addPods(node, nodes[i].policyField, nodes[i].spec.Driver.UpgradePolicy); err != nil {
				return found, err
			}
		}
		found.Nodes = append(found.Nodes, *node)
	}
	slices.SortStableFunc(found.Nodes, compareRounds)
	return found, nil
}

// compareRounds orders nodes by their round, and those that are held last.
func compareRounds(a, b NodeUpgrade) int {
	switch {
	case a.Round == b.Round:
		return 0
	case b.Round == 0 || a.Round != 0 && a.Round < b.Round:
		return -1
	}
	return 1
}

// addPods adds the pods of users that the upgrade of the node concerns.
func (o *observer) addPods(node *NodeUpgrade, field string, spec *v1.DriverUpgradePolicySpec) error {
	policy, err := observe.UpgradePodPolicy(o.cluster.Namespace, field, spec)
	if err != nil {
		return err
	}
	pods := o.pods.all[node.Name]
	workload := upgrade.ClassifyPods(pods, policy, gpuuse.Among(of[*resourcev1.ResourceClaim](o.cluster)))
	for _, user := range workload.Users {
		name := user.Namespace + "/" + user.Name
		at := slices.IndexFunc(pods, func(pod corev1.Pod) bool { return pod.UID == user.UID && pod.Name == user.Name })
		budget := o.cluster.blockingBudget(&pods[at])
		switch {
		case user.Ending:
			continue
		case user.Blocked != "":
			node.Blocked = append(node.Blocked, Blocked{Pod: name, Message: "pod " + name + " " + user.Blocked})
		case budget != "":
			node.Blocked = append(node.Blocked, Blocked{
				Pod: name, Message: fmt.Sprintf("PDB %s allows 0 disruptions: pod %s", budget, name),
			})
		}
		node.Evicted = append(node.Evicted, name)
	}
	for _, job := range workload.Jobs {
		node.Jobs = append(node.Jobs, job.Namespace+"/"+job.Name)
	}
	return nil
}

// blockingBudget returns namespace/name of a PodDisruptionBudget that now forbids to evict the pod, by the rules of the
// API server; empty for none.
func (c *Cluster) blockingBudget(pod *corev1.Pod) string {
	if pod.Status.Phase == corev1.PodPending {
		return ""
	}
	for _, budget := range of[*policyv1.PodDisruptionBudget](c) {
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err != nil || budget.Namespace != pod.Namespace || !selector.Matches(k8slabels.Set(pod.Labels)) ||
			budget.Status.DisruptionsAllowed > 0 || allowsUnready(budget) && !readiness.PodIsReady(pod) {
			continue
		}
		return budget.Namespace + "/" + budget.Name
	}
	return ""
}

// allowsUnready reports whether the budget lets pods that are not ready be evicted.
func allowsUnready(budget *policyv1.PodDisruptionBudget) bool {
	if always := budget.Spec.UnhealthyPodEvictionPolicy; always != nil && *always == policyv1.AlwaysAllow {
		return true
	}
	return budget.Status.DesiredHealthy > 0 && budget.Status.CurrentHealthy >= budget.Status.DesiredHealthy
}

// newPod is the UID of the driver pods that a simulation creates.
const newPod types.UID = "new"
