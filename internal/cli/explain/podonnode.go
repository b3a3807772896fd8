package explain

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/names/text"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
)

// onItsNode explains a pod that is scheduled.
func (in PodInput) onItsNode() []Finding {
	var all []Finding
	waiting := waitingReason(in.Pod)
	if event := latestOf(in.Events, assess.IsStartFailure); event != nil && !hasStarted(in.Pod) {
		// A container that waits for its image has volumes and a sandbox.
		if failure := assess.StartFailure(event); waiting == "" || failure.IsOfHandler() {
			all = append(all, in.notStarted(failure))
		}
	}
	if waiting != "" && len(all) == 0 {
		known := in.Reasons[waiting]
		all = append(all, Finding{
			Reason: ContainerWaiting, Message: podState(in.Pod), Cause: known.Cause,
			Next: cmp.Or(known.Remedy, "read the Events: kubectl -n "+in.Pod.Namespace+" describe pod "+in.Pod.Name),
		})
	}
	i := slices.IndexFunc(in.Nodes, func(n *corev1.Node) bool { return n.Name == in.Pod.Spec.NodeName })
	if i < 0 {
		return all
	}
	ready := assess.GPUReadyCondition(in.Nodes[i])
	if ready != nil && ready.Status != corev1.ConditionTrue {
		all = append(all, Finding{
			Reason: NodeGPUsNotReady, Message: ready.Message,
			Next: "kubectl gpu explain node/" + in.Pod.Spec.NodeName,
		})
	}
	return all
}

// notStarted explains a pod without a started container.
func (in PodInput) notStarted(failure assess.PodFailure) Finding {
	if failure.IsOfHandler() {
		return Finding{
			Reason: RuntimeHandlerMissing, Message: failure.Message,
			Cause: "the container toolkit has not configured the container runtime of the node, or another runtime serves " +
				"the node",
			Next: "look at the operand container-toolkit there: kubectl gpu explain node/" + in.Pod.Spec.NodeName,
		}
	}
	known := in.Reasons[failure.Reason]
	return Finding{
		Reason: PodNotStarted, Message: text.Join(failure.Reason, failure.Message), Cause: known.Cause, Next: known.Remedy,
		Commands: []string{fmt.Sprintf("kubectl -n %s describe pod %s", in.Pod.Namespace, in.Pod.Name)},
	}
}

// hasStarted reports whether a container of the pod runs or has run, for which the pod's sandbox was created.
func hasStarted(pod *corev1.Pod) bool {
	return slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses),
		func(s corev1.ContainerStatus) bool { return s.State.Running != nil || s.State.Terminated != nil })
}

// waitingReason is why a container of the pod does not start, empty if none is known.
func waitingReason(pod *corev1.Pod) string {
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range statuses {
			if w := statuses[i].State.Waiting; w != nil && w.Reason != "PodInitializing" && w.Reason != "ContainerCreating" {
				return w.Reason
			}
		}
	}
	return ""
}

// event returns the message of the latest event with a reason, empty if there is none.
func (in PodInput) event(reason string) string {
	latest := latestOf(in.Events, func(event *corev1.Event) bool { return event.Reason == reason })
	if latest == nil {
		return ""
	}
	return latest.Message
}

// latestOf returns the latest of the events that match, nil for none.
func latestOf(events []corev1.Event, matches func(*corev1.Event) bool) *corev1.Event {
	var latest *corev1.Event
	for i := range events {
		event := &events[i]
		if matches(event) && (latest == nil || !assess.LastSeen(event).Before(assess.LastSeen(latest))) {
			latest = event
		}
	}
	return latest
}
