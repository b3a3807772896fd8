package removal

import (
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

// Node is what is known of a node from which the stack is removed.
type Node struct {
	// Catalogue is sorted.
	Catalogue operand.Catalogue
	// Labels of the node.
	Labels map[string]string
	// Written: the node has labels, annotations, a condition or taints that the operator or its node discovery wrote.
	// Marked: labels or annotations among them show that pods of the stack may have run on it. Only a Release removes the
	// last of these.
	Written, Marked bool
	// Managed: the operator has given the node operands. On another one, labels that select operands are not its own.
	Managed bool
	// Upgrading: the node still has the state of a driver upgrade, which the upgrade controller removes.
	Upgrading bool
	// Excluded: a user keeps all operands off the node, so that nothing of them can be on its host.
	Excluded bool
	// Pods of the stack on the node, except the one that cleans up, by name.
	Pods []Pod
	// Cleaner is the pod that cleans up.
	Cleaner Cleaner
	// Users are namespace/name of the pods that use GPUs of the node, sorted. They need to be read only if NeedsUsers.
	Users []string
	// Kubelet of the node.
	Kubelet Kubelet
	// Force removes the stack although its GPUs are in use, and releases nodes whose clean-up fails.
	Force bool
	// Now is the time, and Patience how long a kubelet that does not work is waited for.
	Now      time.Time
	Patience time.Duration
}

// Pod is a pod of the stack.
type Pod struct {
	Name string
	// Operand that it belongs to; empty for a pod of the operator that is none of an operand.
	Operand operand.Name
}

// Cleaner is the pod that cleans up the host.
type Cleaner struct {
	// Done: the host is clean.
	Done bool
	// Failed and Message are the verdict on the pod, if it is not done.
	Failed  bool
	Message string
}

// Kubelet is the state of a kubelet.
type Kubelet struct {
	// Ready is the node's condition Ready. Unreachable: the kubelet has stopped reporting.
	Ready, Unreachable bool
	// Since is since when it is not ready.
	Since time.Time
}

// NeedsUsers reports whether the next step depends on the pods that use GPUs.
func (n *Node) NeedsUsers() bool {
	if n.Force || !n.Written || !n.hasStack() || n.isLost() && n.Kubelet.Unreachable {
		return false
	}
	return len(n.takeOff()) > 0 || n.isLost() || len(n.endingPods()) == 0 && !n.cleaning()
}

// isLost reports whether the kubelet has not worked for so long that the node is released without clean-up.
func (n *Node) isLost() bool {
	return !n.Kubelet.Ready && n.Now.Sub(n.Kubelet.Since) >= n.Patience
}

// cleaning reports whether the clean-up has been requested.
func (n *Node) cleaning() bool { return n.Labels[labels.Cleanup] == labels.True }

// hasStack reports whether the node is one that has, or had, operands.
func (n *Node) hasStack() bool {
	if n.Excluded {
		return false
	}
	for _, key := range []string{labels.Pool, labels.Layout, labels.GPUPresent, labels.Cleanup} {
		if n.Labels[key] != "" {
			return true
		}
	}
	return len(n.takeOff()) > 0
}

// takeOff returns the changes of labels that remove the operands which nothing on the node needs any more.
func (n *Node) takeOff() map[string]*string {
	changes := map[string]*string{}
	if !n.Managed {
		return changes
	}
	for i := range n.Catalogue {
		o := &n.Catalogue[i]
		if keys := plan.SelectingLabels(o, n.Labels); len(keys) > 0 && !n.isNeeded(o) {
			for _, key := range keys {
				changes[key] = nil
			}
		}
	}
	if n.Labels[labels.DeployClient] == labels.True {
		changes[labels.DeployClient] = nil
	}
	return changes
}

// isNeeded reports whether the node has, or will have, a pod of an operand that needs this one on its node.
func (n *Node) isNeeded(of *operand.Operand) bool {
	dependants := n.Catalogue.NodeDependants(func(o *operand.Operand) bool { return o.Name == of.Name })
	for i := range n.Catalogue {
		o := &n.Catalogue[i]
		if !dependants[o.Name] && !(of.IsInjector && o.NeedsInjection) {
			continue
		}
		if len(plan.SelectingLabels(o, n.Labels)) > 0 || n.hasPod(o.Name) {
			return true
		}
	}
	return false
}

// endingPods returns the pods that no label keeps on the node: they have to end before it is released. Where an
// administrator's labels select operands, their pods end when the DaemonSets are deleted, after all nodes are released.
func (n *Node) endingPods() []Pod {
	var pods []Pod
	for _, pod := range n.Pods {
		if o, known := n.Catalogue.Find(pod.Operand); !known || len(plan.SelectingLabels(o, n.Labels)) == 0 {
			pods = append(pods, pod)
		}
	}
	return pods
}

func (n *Node) hasPod(name operand.Name) bool {
	for _, pod := range n.Pods {
		if pod.Operand == name {
			return true
		}
	}
	return false
}
