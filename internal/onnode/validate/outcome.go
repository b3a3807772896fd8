package validate

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi"
)

// outcome is the result of a test pod so far.
type outcome int

const (
	podPending outcome = iota
	// podUnplaced: the node has no GPU left, for now.
	podUnplaced
	podSucceeded
	podFailed
	// podPreempted: other pods have all GPUs of the node.
	podPreempted
	podDeleted
)

// final reports whether the outcome will not change.
func (o outcome) final() bool { return o > podUnplaced }

// outcomeOf returns the outcome of the pod, which requests one GPU of this resource.
func outcomeOf(pod nodeapi.Pod, resource string) outcome {
	switch pod.Status.Phase {
	case "Succeeded":
		return podSucceeded
	case "Failed":
		// The kubelet's reason if the scheduler placed the pod before it was aware of another one.
		if pod.Status.Reason == "OutOf"+resource || preempted(pod) {
			return podPreempted
		}
		return podFailed
	}
	if preempted(pod) {
		return podPreempted
	}
	if pod.Metadata.DeletionTimestamp != "" {
		return podDeleted
	}
	scheduled, _ := pod.Status.Condition("PodScheduled")
	if scheduled.Status == "False" && scheduled.Reason == "Unschedulable" && isInsufficient(scheduled.Message, resource) {
		return podUnplaced
	}
	return podPending
}

// preempted reports whether the scheduler has taken the pod's GPU for a pod of a higher priority.
func preempted(pod nodeapi.Pod) bool {
	disrupted, _ := pod.Status.Condition("DisruptionTarget")
	return disrupted.Status == "True" && disrupted.Reason == "PreemptionByScheduler"
}

// isInsufficient reports whether the scheduler's message states that the node has none of this resource left. A name
// may be the prefix of another: nvidia.com/gpu and nvidia.com/gpu.shared.
func isInsufficient(message, resource string) bool {
	for rest, found := message, true; found; {
		if _, rest, found = strings.Cut(rest, "Insufficient "+resource); found && !continues(rest) {
			return true
		}
	}
	return false
}

// continues reports whether rest continues the name of a resource.
func continues(rest string) bool {
	rest = strings.TrimLeft(rest, ".")
	return rest != "" &&
		(rest[0] == '-' || rest[0] == '_' || rest[0] >= '0' && rest[0] <= '9' || rest[0] >= 'a' && rest[0] <= 'z')
}

// failedBecause returns the container's last message, else the kubelet's reason for the pod.
func failedBecause(pod nodeapi.Pod) string {
	for _, container := range pod.Status.ContainerStatuses {
		if ended := container.State.Terminated; ended != nil {
			// The last line, since the lines before it are about the GPUs that work.
			message := strings.TrimSpace(ended.Message)
			if last := message[strings.LastIndex(message, "\n")+1:]; last != "" {
				return last
			}
			return fmt.Sprintf("its container ended with exit code %d (%s)", ended.ExitCode,
				cmp.Or(ended.Reason, "no reason given"))
		}
	}
	return reasonAndMessage(pod.Status.Reason, pod.Status.Message)
}

// pendingBecause returns what the pod waits for.
func pendingBecause(pod nodeapi.Pod) string {
	if scheduled, ok := pod.Status.Condition("PodScheduled"); ok && scheduled.Status != "True" {
		return "it is not scheduled: " + reasonAndMessage(scheduled.Reason, scheduled.Message)
	}
	for _, container := range pod.Status.ContainerStatuses {
		if waiting := container.State.Waiting; waiting != nil {
			return "its container is waiting: " + reasonAndMessage(waiting.Reason, waiting.Message)
		}
	}
	return "it is " + cmp.Or(pod.Status.Phase, "Pending") + "; see the kubelet's log and the kernel log of the node"
}

func reasonAndMessage(reason, message string) string {
	return strings.TrimSuffix(cmp.Or(reason, "no reason given")+": "+message, ": ")
}
