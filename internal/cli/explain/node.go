package explain

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cli/overview"
	"github.com/clusterpolicy/gpu-operator/internal/health/healthaction"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/safeversion"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/status/reasons"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// Node is why the GPUs of a node can, or cannot, be used.
type Node struct {
	overview.Node `json:",inline"`
	// Stages in their order.
	Stages []Stage `json:"stages"`
	// Findings are what is wrong, the most important first; none if nothing is.
	Findings []Finding `json:"findings"`
	// Pods of the operator on the node.
	Pods []OperandPod `json:"pods,omitempty"`
}

// Stage of the node.
type Stage struct {
	Name v1.Stage `json:"name"`
	// Reached reports whether the node has reached it. A later stage than the first one that is not reached is unknown
	// to be reached, and counts as not reached.
	Reached bool `json:"reached"`
	// Off: a field or a label keeps its operand off the node, so that there is nothing to reach.
	Off bool `json:"off,omitempty"`
}

// OperandPod is a pod of the operator on the node.
type OperandPod struct {
	// Operand is the label app of the pod.
	Operand string `json:"operand"`
	Name    string `json:"name"`
	Ready   bool   `json:"ready"`
	// State is what the pod waits for, or its phase.
	State string `json:"state"`
}

// NodeInput is what a Node is computed from.
type NodeInput struct {
	Node *corev1.Node
	// Overview of the node in a cluster with this policy, which may be nil.
	Overview overview.Node
	Policy   *v1.ClusterPolicy
	// Namespace of the operator.
	Namespace string
	// Pods of the operator on the node.
	Pods []corev1.Pod
	// Reasons are those of package reasons.
	Reasons map[string]reasons.Explanation
}

// OfNode explains a node.
func OfNode(in NodeInput) Node {
	n := Node{Node: in.Overview, Findings: []Finding{}}
	for _, stage := range v1.Stages() {
		reached := n.Ready == overview.Ready || n.Stage != "" && stage.Before(n.Stage)
		off := stage == v1.StageDevicePlugin && n.Reason == v1.ReasonDevicePluginOff
		n.Stages = append(n.Stages, Stage{Name: stage, Reached: reached && !off, Off: off})
	}
	for i := range in.Pods {
		n.Pods = append(n.Pods, operandPod(&in.Pods[i]))
	}
	slices.SortFunc(n.Pods, func(a, b OperandPod) int {
		return cmp.Or(compareBool(a.Ready, b.Ready), cmp.Compare(a.Operand, b.Operand), cmp.Compare(a.Name, b.Name))
	})
	n.Findings = append(n.Findings, in.aboutThePolicy()...)
	n.Findings = append(n.Findings, in.aboutTheNode()...)
	return n
}

// compareBool orders false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// aboutThePolicy are the causes for all nodes.
func (in NodeInput) aboutThePolicy() []Finding {
	if in.Policy == nil {
		return []Finding{{
			Reason: "NoClusterPolicy", Message: "the cluster has no ClusterPolicy, so the operator does nothing",
			Next: "create one, for example with kubectl apply -f config/samples/clusterpolicy.yaml",
		}}
	}
	var all []Finding
	for _, limit := range overview.Limits(in.Policy) {
		all = append(all, in.finding(limit.Reason, limit.Message, ""))
	}
	return all
}

// aboutTheNode are the causes that the operator has reported on the node.
func (in NodeInput) aboutTheNode() []Finding {
	var all []Finding
	node := in.Overview
	switch {
	case assess.GPUReadyCondition(in.Node) == nil:
		all = append(all, Finding{
			Reason: "NotReported", Message: node.Message,
			Next:     "check that the operator runs, and read its log",
			Commands: []string{"kubectl -n " + in.Namespace + " logs deployment/gpu-operator"},
		})
	case node.Reason != "":
		all = append(all, in.finding(node.Reason, node.Message, node.Operand))
	}
	if healthy := assess.GPUHealthyCondition(in.Node); healthy != nil && healthy.Status != corev1.ConditionTrue {
		all = append(all, in.finding(healthy.Reason, healthy.Message, ""))
	}
	if upgrade := in.upgrade(); upgrade != nil && upgrade.Reason != "" && upgrade.Reason != node.Reason {
		found := in.finding(upgrade.Reason, upgrade.Message, "")
		if node.Reason == v1.ReasonUpgradePending {
			// What the upgrade waits for is the cause of the first finding.
			all = slices.Insert(all, 0, found)
		} else {
			all = append(all, found)
		}
	}
	if node.Cordoned {
		all = append(all, in.cordoned())
	}
	if outdated, isOutdated := safeversion.Check(safeversion.Driver, node.Driver); isOutdated {
		all = append(all, Finding{
			Reason:  v1.ReasonOutdatedComponent,
			Message: fmt.Sprintf("the driver %s is %s", outdated.Version, outdated.Why()),
			Cause:   in.Reasons[v1.ReasonOutdatedComponent].Cause, Next: outdated.Remedy(),
		})
	}
	return all
}

// cordoned explains a cordon: the operator's own ones end with their cause.
func (in NodeInput) cordoned() Finding {
	f := Finding{
		Reason: Cordoned, Message: "new pods are not scheduled on the node",
		Next: "uncordon it, unless someone works on the node",
	}
	switch {
	case in.isUnhealthy():
		f.Next = "do what the unhealthy GPU needs: the operator has cordoned the node because of it (spec.health.actions), " +
			"and uncordons it once it is healthy"
	case in.isDrained():
		f.Next = "wait for the change of the node's MIG layout (spec.migManager.config.onBusy), which uncordons it"
	case in.isUpgraded():
		f.Next = "wait for the driver upgrade of the node, which uncordons it"
	default:
		f.Commands = []string{"kubectl uncordon " + in.Node.Name}
	}
	return f
}

// isUnhealthy reports whether the operator has cordoned the node because of an unhealthy GPU.
func (in NodeInput) isUnhealthy() bool {
	record, err := healthaction.DecodeRecord(in.Node.Annotations[labels.HealthRecord])
	return err == nil && record.Cordons(in.Node.UID)
}

// isUpgraded reports whether the operator has cordoned the node to upgrade its driver.
func (in NodeInput) isUpgraded() bool {
	record, err := upgrade.DecodeRecord(in.Node.Annotations[labels.UpgradeRecord])
	return err == nil && record.UID == in.Node.UID && record.Cordoned
}

// isDrained reports whether the operator has cordoned the node to change its MIG layout, and uncordons it after that.
func (in NodeInput) isDrained() bool {
	drain, err := upgrade.DecodeDrain(in.Node.Annotations[labels.MIGDrain])
	return err == nil && drain.State.InProgress() && drain.Cordons(in.Node.UID)
}

// upgrade is the upgrade of the node's driver in the status of the policy, nil if there is none.
func (in NodeInput) upgrade() *v1.NodeUpgradeStatus {
	if in.Policy == nil {
		return nil
	}
	i := slices.IndexFunc(in.Policy.Status.Nodes, func(s v1.NodeStatus) bool { return s.Name == in.Node.Name })
	if i < 0 {
		return nil
	}
	return in.Policy.Status.Nodes[i].Upgrade
}

// finding is one with a reason of the API. operand is the one that it is about; empty if that is not known.
func (in NodeInput) finding(reason, message, operand string) Finding {
	known, found := in.Reasons[reason]
	if !found {
		return Finding{
			Reason: reason, Message: message,
			Next: "update this plugin: it does not know the reason, which a newer release of the operator reports",
		}
	}
	f := Finding{Reason: reason, Message: message, Cause: known.Cause, Next: known.Remedy}
	in.addCommands(&f, operand)
	return f
}

func operandPod(pod *corev1.Pod) OperandPod {
	return OperandPod{
		Operand: pod.Labels[labels.App], Name: pod.Name, Ready: readiness.PodIsReady(pod), State: podState(pod),
	}
}

// podState describes the first container that does not run, or else the phase of the pod.
func podState(pod *corev1.Pod) string {
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range statuses {
			s := &statuses[i]
			switch {
			case s.State.Waiting != nil && s.State.Waiting.Reason != "" && s.State.Waiting.Reason != "PodInitializing":
				return fmt.Sprintf("container %s: %s", s.Name, s.State.Waiting.Reason)
			case s.State.Terminated != nil && s.State.Terminated.ExitCode != 0:
				return fmt.Sprintf("container %s: exit code %d", s.Name, s.State.Terminated.ExitCode)
			}
		}
	}
	for i := range pod.Status.InitContainerStatuses {
		if s := &pod.Status.InitContainerStatuses[i]; s.State.Running != nil && !readiness.RunsBeside(s) {
			return fmt.Sprintf("init container %s runs", s.Name)
		}
	}
	return string(pod.Status.Phase)
}
