package readiness

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/text"
)

// crashLoop and imagePull are the kubelet's words for failures that it shows in alternating guises;
// each is reported under one name, so that a verdict does not flap with the kubelet's back-off.
const (
	crashLoop = "CrashLoopBackOff"
	imagePull = "ImagePullBackOff"
)

// outOfMemory is the kubelet's word for the end of a container that took more memory than its limit.
const outOfMemory = "OOMKilled"

// nodeCounts are the numbers in the scheduler's message.
var nodeCounts = regexp.MustCompile(`\b[0-9]+(/[0-9]+)? `)

// waitingFailures maps the kubelet's waiting reasons that are failures to the name reported.
var waitingFailures = map[string]string{
	crashLoop:                    crashLoop,
	imagePull:                    imagePull,
	"ErrImagePull":               imagePull,
	"ErrImageNeverPull":          "ErrImageNeverPull",
	"InvalidImageName":           "InvalidImageName",
	"RegistryUnavailable":        imagePull,
	"SignatureValidationFailed":  imagePull,
	"ImageInspectError":          "ImageInspectError",
	"CreateContainerConfigError": "CreateContainerConfigError",
	"CreateContainerError":       "CreateContainerError",
	"RunContainerError":          "RunContainerError",
	"PreCreateHookError":         "PreCreateHookError",
	"PreStartHookError":          "PreStartHookError",
	"PostStartHookError":         "PostStartHookError",
}

// recoveryTime is how long a container that has failed must run before it counts as recovered. A
// container without probes is ready whenever it runs, so that one in a crash loop would be ready
// and failed by turns.
const recoveryTime = time.Minute

// Pod tells whether a pod does its work at this time, and if not, which container holds it up and
// why. templateDigest is that of the DaemonSet's present template.
func Pod(pod *corev1.Pod, templateDigest string, now time.Time) Verdict {
	verdict := podState(pod, now)
	verdict.Outdated = pod.Annotations[labels.TemplateDigest] != templateDigest
	return verdict
}

func podState(pod *corev1.Pod, now time.Time) Verdict {
	if pod.DeletionTimestamp != nil {
		return progressing(v1.ReasonStarting, "the pod is being replaced")
	}
	if pod.Status.Phase == corev1.PodFailed {
		return failed(v1.ReasonContainerFailed, text.Join("the pod failed", pod.Status.Reason, pod.Status.Message))
	}
	if condition := podCondition(pod, corev1.PodReady); condition != nil && condition.Status == corev1.ConditionTrue {
		return recovering(pod, now)
	}
	if condition := podCondition(pod, corev1.PodScheduled); condition == nil || condition.Status != corev1.ConditionTrue {
		return unscheduled(condition)
	}
	if verdict, fails := podFailure(pod); fails {
		return verdict
	}
	return starting(pod)
}

// podFailure finds the first container that fails, in the order in which they start.
func podFailure(pod *corev1.Pod) (Verdict, bool) {
	for i := range pod.Status.InitContainerStatuses {
		status := &pod.Status.InitContainerStatuses[i]
		if ended := status.State.Terminated; ended != nil && ended.ExitCode == 0 {
			continue
		}
		// The others have not started; what they show is from before a reboot.
		return containerFailure(status, lastInitFailure(status))
	}
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		if verdict, fails := containerFailure(status, lastTermination(status, sandboxStart(pod))); fails && !status.Ready {
			return verdict, true
		}
	}
	return Verdict{}, false
}

// recovering finds a container of a ready pod that has failed before and has not run for long since.
func recovering(pod *corev1.Pod, now time.Time) Verdict {
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		if status.State.Running == nil {
			continue
		}
		recovered := status.State.Running.StartedAt.Add(recoveryTime)
		if ended := lastTermination(status, sandboxStart(pod)); ended != nil && now.Before(recovered) {
			verdict := crashed(status, ended)
			verdict.Until = recovered
			return verdict
		}
	}
	return Verdict{}
}

// Stable tells whether the verdict on a pod is the same without the statuses of its containers: it is ready, and
// none of its containers has ever ended.
func Stable(pod *corev1.Pod) bool {
	for i := range pod.Status.ContainerStatuses {
		if lastTermination(&pod.Status.ContainerStatuses[i], time.Time{}) != nil {
			return false
		}
	}
	condition := podCondition(pod, corev1.PodReady)
	return condition != nil && condition.Status == corev1.ConditionTrue
}

func unscheduled(condition *corev1.PodCondition) Verdict {
	if condition != nil && condition.Reason == corev1.PodReasonUnschedulable {
		// The counts of nodes change with every node that joins; the causes between them do not.
		return failed(corev1.PodReasonUnschedulable, nodeCounts.ReplaceAllString(condition.Message, ""))
	}
	return progressing(v1.ReasonPodPending, "the pod is not scheduled yet")
}

// containerFailure recognises a container that fails, also in the moments in which the kubelet has
// just started it once more: it is failing until it is ready. ended is how it last failed, if it did.
func containerFailure(status *corev1.ContainerStatus, ended *corev1.ContainerStateTerminated) (Verdict, bool) {
	if ended != nil {
		return crashed(status, ended), true
	}
	if waiting := status.State.Waiting; waiting != nil {
		if reason, fails := waitingFailures[waiting.Reason]; fails {
			return failed(reason, fmt.Sprintf("container %s: %s", status.Name, text.Join(reason, imageOf(reason, status)))), true
		}
	}
	return Verdict{}, false
}

func crashed(status *corev1.ContainerStatus, ended *corev1.ContainerStateTerminated) Verdict {
	message := fmt.Sprintf("container %s: %s, exit code %d", status.Name, crashLoop, ended.ExitCode)
	if ended.Reason == outOfMemory {
		// A container that the kernel kills has no last words.
		message += " (" + outOfMemory + ")"
	}
	verdict := failed(crashLoop, message)
	verdict.Detail = ended.Message
	return verdict
}

// lastTermination is the last end of a main container, which is a failure even with exit code 0: the
// containers of a DaemonSet are to run for ever. An end before the sandbox was made is none: a reboot
// ends every container.
func lastTermination(status *corev1.ContainerStatus, sandbox time.Time) *corev1.ContainerStateTerminated {
	ended := status.State.Terminated
	if ended == nil {
		ended = status.LastTerminationState.Terminated
	}
	if ended != nil && ended.FinishedAt.Time.Before(sandbox) {
		return nil
	}
	return ended
}

// sandboxStart is since when the pod has had its present sandbox, as far as its init containers show:
// they run once in each.
func sandboxStart(pod *corev1.Pod) time.Time {
	var since time.Time
	for i := range pod.Status.InitContainerStatuses {
		started := startOf(&pod.Status.InitContainerStatuses[i].State)
		if since.IsZero() || (!started.IsZero() && started.Before(since)) {
			since = started
		}
	}
	return since
}

// PendingRuntimeClass is the RuntimeClass of a pod on a node whose container runtime has made nothing of it: before the
// handler of the class is configured, it cannot. Empty for others, and where the kubelet does not tell:
// PodReadyToStartContainers is there from Kubernetes 1.29 on.
func PendingRuntimeClass(pod *corev1.Pod) string {
	condition := podCondition(pod, corev1.PodReadyToStartContainers)
	if pod.Spec.RuntimeClassName == nil || pod.DeletionTimestamp != nil || condition == nil || condition.Status != corev1.ConditionFalse {
		return ""
	}
	return *pod.Spec.RuntimeClassName
}

// SandboxReadySince is since when a pod has had its present sandbox. Of one that is ready, where nobody has kept that, it is
// since when it is ready; zero where neither is known.
func SandboxReadySince(pod *corev1.Pod) time.Time {
	if condition := podCondition(pod, corev1.PodReadyToStartContainers); condition != nil && condition.Status == corev1.ConditionTrue {
		return condition.LastTransitionTime.Time
	}
	return ReadySince(pod)
}

func startOf(state *corev1.ContainerState) time.Time {
	switch {
	case state.Terminated != nil:
		return state.Terminated.StartedAt.Time
	case state.Running != nil:
		return state.Running.StartedAt.Time
	}
	return time.Time{}
}

// lastInitFailure is the last failure of an init container.
func lastInitFailure(status *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	for _, state := range []corev1.ContainerState{status.State, status.LastTerminationState} {
		if state.Terminated != nil && state.Terminated.ExitCode != 0 {
			return state.Terminated
		}
	}
	return nil
}

// imageOf names the image of a failed pull; the kubelet's own message changes with each attempt.
func imageOf(reason string, status *corev1.ContainerStatus) string {
	if reason == imagePull || reason == "InvalidImageName" || reason == "ErrImageNeverPull" {
		return status.Image
	}
	return ""
}

func starting(pod *corev1.Pod) Verdict {
	if class := PendingRuntimeClass(pod); class != "" {
		return progressing(v1.ReasonStarting, "the container runtime has not made the pod yet, with RuntimeClass "+class)
	}
	for i := range pod.Status.InitContainerStatuses {
		status := &pod.Status.InitContainerStatuses[i]
		if status.State.Running == nil {
			continue
		}
		if strings.HasPrefix(status.Name, labels.WaitContainer) {
			return progressing(v1.ReasonWaitingForOperand, "waits for "+awaitedOperands(pod, status.Name))
		}
		return progressing(v1.ReasonStarting, "container "+status.Name+" is running")
	}
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		if status.State.Running != nil && !status.Ready {
			return progressing(v1.ReasonStarting, "container "+status.Name+" is not ready yet")
		}
	}
	return progressing(v1.ReasonStarting, "the pod is starting")
}

func awaitedOperands(pod *corev1.Pod, container string) string {
	for _, c := range pod.Spec.InitContainers {
		if c.Name != container {
			continue
		}
		for _, arg := range c.Args {
			if names, found := strings.CutPrefix(arg, labels.WaitForFlag); found {
				if slices.Contains(c.Args, labels.InjectedFlag) {
					names += " and the container runtime"
				}
				return names
			}
		}
	}
	return "another operand"
}

func podCondition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}
