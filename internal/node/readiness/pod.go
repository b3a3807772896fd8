package readiness

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/text"
)

// crashLoop and imagePull are reported for all waiting reasons between which the kubelet alternates during back-off, so
// that the verdict does not flap.
const (
	crashLoop = "CrashLoopBackOff"
	imagePull = "ImagePullBackOff"
)

// outOfMemory is the kubelet's reason for a container that exceeded its memory limit.
const outOfMemory = "OOMKilled"

// RefusedByKubelet is the reason of a failed pod that the kubelet has not admitted because of its devices.
const RefusedByKubelet = "UnexpectedAdmissionError"

// nodeCounts matches the numbers in the scheduler's message.
var nodeCounts = regexp.MustCompile(`\b[0-9]+(/[0-9]+)? `)

// waitingFailures maps the kubelet's waiting reasons that are failures to the reason that is reported.
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

// recoveryTime is how long a container that has failed must run before it counts as recovered. Without it, a container
// that has no probes would alternate between ready and failed in a crash loop.
const recoveryTime = time.Minute

// Pod returns the verdict on a pod at this time: whether it is ready, or which container is not and why. The pod is
// outdated unless it has the digest of the DaemonSet's current template.
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
	if PodIsReady(pod) {
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

// podFailure returns the failure of the first failing container.
func podFailure(pod *corev1.Pod) (Verdict, bool) {
	if status, terminated := firstFailing(pod); status != nil {
		return containerFailure(status, terminated)
	}
	return Verdict{}, false
}

// firstFailing returns the first container that may fail, in the order in which they start, and its last termination,
// if that is a failure; nil if none fails.
func firstFailing(pod *corev1.Pod) (*corev1.ContainerStatus, *corev1.ContainerStateTerminated) {
	for i := range pod.Status.InitContainerStatuses {
		status := &pod.Status.InitContainerStatuses[i]
		if terminated := status.State.Terminated; terminated != nil && terminated.ExitCode == 0 || RunsBeside(status) {
			continue
		}
		// Later containers have not started; their statuses are from before a reboot.
		return status, lastInitFailure(status)
	}
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		terminated := lastTermination(status, sandboxStart(pod))
		if _, fails := containerFailure(status, terminated); fails && !status.Ready {
			return status, terminated
		}
	}
	return nil, nil
}

// RunsBeside reports whether an init container is a sidecar (restartPolicy Always) that has started: the containers
// after it do not wait for its end. The kubelet sets started of no other init container that runs.
func RunsBeside(status *corev1.ContainerStatus) bool {
	return status.State.Running != nil && status.Started != nil && *status.Started
}

// recovering returns the failure of a container of a ready pod that has not run for the recovery time since.
func recovering(pod *corev1.Pod, now time.Time) Verdict {
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		if status.State.Running == nil {
			continue
		}
		recovered := status.State.Running.StartedAt.Add(recoveryTime)
		if terminated := lastTermination(status, sandboxStart(pod)); terminated != nil && now.Before(recovered) {
			verdict := crashed(status, terminated)
			verdict.Until = recovered
			return verdict
		}
	}
	return Verdict{}
}

// UnrecoveredExit returns how the first main container of the pod ended that has not recovered since; nil for none.
func UnrecoveredExit(pod *corev1.Pod, now time.Time) *corev1.ContainerStateTerminated {
	for i := range pod.Status.ContainerStatuses {
		if terminated := unrecovered(&pod.Status.ContainerStatuses[i], sandboxStart(pod), now); terminated != nil {
			return terminated
		}
	}
	return nil
}

// unrecovered returns the last termination of a main container that has not recovered since; nil for none.
func unrecovered(status *corev1.ContainerStatus, sandbox, now time.Time) *corev1.ContainerStateTerminated {
	running := status.State.Running
	if status.Ready && running != nil && !now.Before(running.StartedAt.Add(recoveryTime)) {
		return nil
	}
	return lastTermination(status, sandbox)
}

// NeverTerminated reports whether the pod is ready and none of its main containers has ever terminated, so that its
// verdict does not depend on the statuses of its containers.
func NeverTerminated(pod *corev1.Pod) bool {
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
		// The counts change with every node that joins; the causes do not.
		return failed(corev1.PodReasonUnschedulable, nodeCounts.ReplaceAllString(condition.Message, ""))
	}
	return progressing(v1.ReasonPodPending, "the pod is not scheduled yet")
}

// containerFailure reports whether a container fails. After a restart it keeps failing until it is ready. terminated is
// its last failure; nil for none.
func containerFailure(
	status *corev1.ContainerStatus, terminated *corev1.ContainerStateTerminated,
) (Verdict, bool) {
	if terminated != nil {
		return crashed(status, terminated), true
	}
	if waiting := status.State.Waiting; waiting != nil {
		if reason, fails := waitingFailures[waiting.Reason]; fails {
			cause := text.Join(reason, imageOf(reason, status))
			verdict := failed(reason, fmt.Sprintf("container %s: %s", status.Name, cause))
			verdict.Detail = waitingCause(waiting)
			return verdict, true
		}
	}
	return Verdict{}, false
}

func crashed(status *corev1.ContainerStatus, terminated *corev1.ContainerStateTerminated) Verdict {
	message := fmt.Sprintf("container %s: %s, exit code %d", status.Name, crashLoop, terminated.ExitCode)
	if terminated.Reason == outOfMemory {
		// A killed container has no termination message.
		message += " (" + outOfMemory + ")"
	}
	verdict := failed(crashLoop, message)
	verdict.Detail = LastLine(terminated.Message)
	return verdict
}

// lastTermination returns the last termination of a main container, nil for none. Exit code 0 is a failure too, because
// containers of a DaemonSet must not exit. A termination before the current sandbox does not count: a reboot terminates
// every container.
func lastTermination(status *corev1.ContainerStatus, sandbox time.Time) *corev1.ContainerStateTerminated {
	terminated := status.State.Terminated
	if terminated == nil {
		terminated = status.LastTerminationState.Terminated
	}
	if terminated != nil && terminated.FinishedAt.Time.Before(sandbox) {
		return nil
	}
	return terminated
}

// sandboxStart returns when the first init container started in the current sandbox; zero if unknown. Init containers
// run once in each sandbox, but sidecars may restart.
func sandboxStart(pod *corev1.Pod) time.Time {
	var since time.Time
	for i := range pod.Status.InitContainerStatuses {
		if RunsBeside(&pod.Status.InitContainerStatuses[i]) {
			continue
		}
		started := startOf(&pod.Status.InitContainerStatuses[i].State)
		if since.IsZero() || (!started.IsZero() && started.Before(since)) {
			since = started
		}
	}
	return since
}

// PendingRuntimeClass returns the RuntimeClass of a pod that has no sandbox yet, as while the handler of the class is
// not configured. It is empty for other pods, and with kubelets before Kubernetes 1.29, which do not set the condition
// PodReadyToStartContainers.
func PendingRuntimeClass(pod *corev1.Pod) string {
	if pod.Spec.RuntimeClassName == nil || pod.DeletionTimestamp != nil || !AwaitsSandbox(pod) {
		return ""
	}
	return *pod.Spec.RuntimeClassName
}

// AwaitsSandbox reports whether the kubelet has not created the sandbox of a pod yet: it mounts the volumes before. It
// is false with kubelets before Kubernetes 1.29, which do not set the condition PodReadyToStartContainers.
func AwaitsSandbox(pod *corev1.Pod) bool {
	condition := podCondition(pod, corev1.PodReadyToStartContainers)
	return condition != nil && condition.Status == corev1.ConditionFalse
}

// SandboxReadySince returns since when the pod has had its current sandbox, or since when it has been ready if that is
// unknown; zero if both are.
func SandboxReadySince(pod *corev1.Pod) time.Time {
	condition := podCondition(pod, corev1.PodReadyToStartContainers)
	if condition != nil && condition.Status == corev1.ConditionTrue {
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

// lastInitFailure returns the last termination of an init container with an exit code other than 0, nil for none.
func lastInitFailure(status *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	for _, state := range []corev1.ContainerState{status.State, status.LastTerminationState} {
		if state.Terminated != nil && state.Terminated.ExitCode != 0 {
			return state.Terminated
		}
	}
	return nil
}

// imageOf returns the image of a failed pull.
func imageOf(reason string, status *corev1.ContainerStatus) string {
	if reason == imagePull || reason == "InvalidImageName" || reason == "ErrImageNeverPull" {
		return status.Image
	}
	return ""
}

func starting(pod *corev1.Pod) Verdict {
	if class := PendingRuntimeClass(pod); class != "" {
		return progressing(v1.ReasonStarting,
			"the container runtime has not created the pod yet: if this lasts, check its handler of RuntimeClass "+class)
	}
	for i := range pod.Status.InitContainerStatuses {
		status := &pod.Status.InitContainerStatuses[i]
		if status.State.Running == nil || RunsBeside(status) {
			continue
		}
		if strings.HasPrefix(status.Name, labels.WaitContainer) {
			return progressing(v1.ReasonWaitingForOperand, "waiting for "+awaitedOperands(pod, status.Name))
		}
		return progressing(v1.ReasonStarting, "init container "+status.Name+" is running")
	}
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		if status.State.Running != nil && !status.Ready {
			return progressing(v1.ReasonStarting, "container "+status.Name+" is not ready")
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

// PodIsReady reports whether the condition Ready of a pod is True.
func PodIsReady(pod *corev1.Pod) bool {
	condition := podCondition(pod, corev1.PodReady)
	return condition != nil && condition.Status == corev1.ConditionTrue
}

func podCondition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}
