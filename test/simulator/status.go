package simulator

import (
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// id numbers the runs of a container.
func (c *container) id() string { return c.spec.Name + "-" + strconv.Itoa(int(c.restarts)) }

func (c *container) state() corev1.ContainerState {
	switch c.phase {
	case running:
		return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: seconds(c.since)}}
	case terminated:
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: c.exitCode, Reason: c.reason, Message: c.message,
			StartedAt: seconds(c.ranSince), FinishedAt: seconds(c.since),
		}}
	default:
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: c.reason, Message: c.message}}
	}
}

func (c *container) status(pod *pod, isInit bool) corev1.ContainerStatus {
	started, ready := c.started, c.ready
	if isInit {
		// An init container is ready when it has succeeded.
		started, ready = c.phase == running, c.done()
	}
	status := corev1.ContainerStatus{
		Name: c.spec.Name, Image: c.spec.Image, State: c.state(),
		Ready: ready, Started: &started, RestartCount: c.restarts,
	}
	if c.phase != waiting || c.last != nil {
		status.ContainerID = "containerd://" + string(pod.uid) + "-" + c.id()
		status.ImageID = c.spec.Image
	}
	if c.last != nil && c.phase != terminated {
		status.LastTerminationState.Terminated = c.last
	}
	return status
}

// status returns what a kubelet would report of the pod now.
func (p *pod) status(now time.Time, hostIP string) *corev1.PodStatus {
	started := seconds(p.created)
	status := &corev1.PodStatus{
		Phase:     p.phase(),
		HostIP:    hostIP,
		HostIPs:   []corev1.HostIP{{IP: hostIP}},
		StartTime: &started,
		QOSClass:  p.object.Status.QOSClass,
	}
	if p.refused != "" {
		status.Reason, status.Message = "UnexpectedAdmissionError", p.refused
	}
	if p.sandbox {
		ip := p.ip
		if p.object.Spec.HostNetwork {
			ip = hostIP
		}
		status.PodIP, status.PodIPs = ip, []corev1.PodIP{{IP: ip}}
	}
	for _, c := range p.inits {
		status.InitContainerStatuses = append(status.InitContainerStatuses, c.status(p, true))
	}
	for _, c := range p.mains {
		status.ContainerStatuses = append(status.ContainerStatuses, c.status(p, false))
	}
	status.Conditions = p.conditions(now)
	return status
}

// phase follows the kubelet's rules.
func (p *pod) phase() corev1.PodPhase {
	waits := func(c *container) bool { return c.phase == waiting && c.last == nil }
	ended := func(c *container) bool { return c.phase == terminated && c.exitCode == 0 }
	switch {
	case p.refused != "", p.failed():
		return corev1.PodFailed
	case p.initialized() > 0 || slices.ContainsFunc(p.mains, waits):
		return corev1.PodPending
	case !slices.ContainsFunc(p.mains, func(c *container) bool { return !ended(c) }):
		return corev1.PodSucceeded
	default:
		return corev1.PodRunning
	}
}

// failed reports whether a pod that is never restarted has failed.
func (p *pod) failed() bool {
	inVain := func(c *container) bool { return c.phase == terminated && c.exitCode != 0 }
	running := func(c *container) bool { return c.phase != terminated }
	return p.object.Spec.RestartPolicy == corev1.RestartPolicyNever && (slices.ContainsFunc(p.inits, inVain) ||
		slices.ContainsFunc(p.mains, inVain) && !slices.ContainsFunc(p.mains, running))
}

// initialized counts the init containers that are not done.
func (p *pod) initialized() int {
	left := 0
	for _, c := range p.inits {
		if !c.done() {
			left++
		}
	}
	return left
}

// conditions keeps the conditions of other writers, such as PodScheduled, and the times of unchanged ones.
func (p *pod) conditions(now time.Time) []corev1.PodCondition {
	uninitialized := names(p.inits, func(c *container) bool { return !c.done() })
	unready := names(p.mains, func(c *container) bool { return !c.ready })
	notInitialized, notReady := "", ""
	if uninitialized != "" {
		notInitialized = "containers with incomplete status: [" + uninitialized + "]"
	}
	if unready != "" {
		notReady = "containers with unready status: [" + unready + "]"
	}
	reason := "ContainersNotReady"
	if p.phase() == corev1.PodSucceeded {
		reason, notReady = "PodCompleted", " "
	}
	own := []corev1.PodCondition{
		condition(corev1.PodReadyToStartContainers, p.sandbox, "", ""),
		condition(corev1.PodInitialized, uninitialized == "", "ContainersNotInitialized", notInitialized),
		condition(corev1.PodReady, notReady == "", reason, strings.TrimSpace(notReady)),
		condition(corev1.ContainersReady, notReady == "", reason, strings.TrimSpace(notReady)),
	}
	before := p.object.Status.Conditions
	if p.written != nil {
		before = p.written.Conditions
	}
	conditions := slices.Clone(before)
	for _, c := range own {
		c.LastTransitionTime = seconds(now)
		i := slices.IndexFunc(conditions, func(old corev1.PodCondition) bool { return old.Type == c.Type })
		switch {
		case i < 0:
			conditions = append(conditions, c)
		case conditions[i].Status == c.Status && !p.isRecreated(conditions[i]):
			c.LastTransitionTime = conditions[i].LastTransitionTime
			conditions[i] = c
		default:
			conditions[i] = c
		}
	}
	return conditions
}

// isRecreated reports whether the condition is about a sandbox of before a reboot.
func (p *pod) isRecreated(of corev1.PodCondition) bool {
	return of.Type == corev1.PodReadyToStartContainers &&
		of.LastTransitionTime.Time.Before(p.recreated.Truncate(time.Second))
}

func condition(kind corev1.PodConditionType, holds bool, reason, message string) corev1.PodCondition {
	if holds {
		return corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue}
	}
	return corev1.PodCondition{Type: kind, Status: corev1.ConditionFalse, Reason: reason, Message: message}
}

// names lists the containers for a condition's message.
func names(containers []*container, listed func(*container) bool) string {
	var list []string
	for _, c := range containers {
		if listed(c) {
			list = append(list, c.spec.Name)
		}
	}
	return strings.Join(list, " ")
}

// seconds truncates a time to the API's precision, so that it compares equal when read.
func seconds(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }
