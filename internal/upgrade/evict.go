package upgrade

import (
	"fmt"
	"strings"
	"time"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// notReady is the message of a node whose kubelet does not report.
const notReady = "the node's condition Ready is not True"

// deadTime is how long a cordoned node with its old driver may not report before its upgrade, or its drain for a MIG
// layout, fails: no limit that says how long pods may take is meant for a node that is gone. It is also how long the
// calls may fail that read its pods or pull its images.
const deadTime = 15 * time.Minute

// isDead reports whether the node has not reported for too long.
func (v *visit) isDead() bool {
	since := v.node.NotReadySince
	return !v.node.KubeletReady && !since.IsZero() && !v.now.Before(since.Add(deadTime))
}

// untilDead is when the node counts as dead; zero if it reports, or counts so already.
func (v *visit) untilDead() time.Time {
	since := v.node.NotReadySince
	if v.node.KubeletReady || since.IsZero() || v.isDead() {
		return time.Time{}
	}
	return since.Add(deadTime)
}

// notReady is the message of a node that is dead.
func (v *visit) notReady() string {
	return notReady + " since " + v.node.NotReadySince.UTC().Format(time.RFC3339)
}

// remaining says whether pods use the GPUs of a node.
type remaining int

const (
	unknown remaining = iota
	some
	none
)

// unready is the turn of a node whose pods are not known, because its kubelet does not report or they were not read.
func (v *visit) unready() turn {
	if !v.node.KubeletReady {
		held := v.hold(v1.ReasonUpgradeNodeNotReady, notReady)
		held.until = v.untilDead()
		return held
	}
	return v.wait(stateReason(v.state), "the pods on the node are not read yet")
}

// evict evicts the pods that use GPUs, and with all the further ones that a drain evicts.
func (v *visit) evict(all bool) (turn, remaining) {
	workload := v.node.Workload
	if !v.node.KubeletReady || workload == nil {
		return v.unready(), unknown
	}
	if len(workload.Users) == 0 {
		return turn{}, none
	}
	pods := workload.Users
	if all {
		pods = append(append([]WorkloadPod{}, pods...), workload.Others...)
	}
	waiting := v.evicting(pods)
	var due []WorkloadPod
	for _, pod := range pods {
		if !pod.Ending && !pod.Forbidden {
			due = append(due, pod)
		}
	}
	if len(due) > 0 {
		waiting.step = &Step{Action: ActionEvict, Pods: due, Why: "they use the GPUs"}
		if all {
			waiting.step.Why = "the node is drained"
		}
	}
	return waiting, some
}

// evicting names the pods that cannot be evicted, or those that are ending.
func (v *visit) evicting(pods []WorkloadPod) turn {
	var blocked []string
	for _, pod := range pods {
		switch {
		case pod.Blocked == "" || pod.Ending:
		case pod.Forbidden:
			blocked = append(blocked, pod.describeForbidden())
		default:
			blocked = append(blocked, pod.Blocked+": pod "+pod.Namespace+"/"+pod.Name)
		}
	}
	if len(blocked) > 0 {
		return v.hold(v1.ReasonUpgradeBlocked, describeBlocked(blocked))
	}
	return v.wait(v1.ReasonUpgradeEvicting, "waits for the end of "+listPods(pods))
}

// describeBlocked describes all pods if that fits into a message, else the first one, and counts the others.
func describeBlocked(blocked []string) string {
	all := strings.Join(blocked, "; ")
	if len(blocked) == 1 || len(all) <= maxMessage {
		return all
	}
	return fmt.Sprintf("%d pods are blocked: %s", len(blocked), blocked[0])
}

// describeForbidden says why a Forbidden pod is not evicted.
func (p *WorkloadPod) describeForbidden() string {
	return "pod " + p.Namespace + "/" + p.Name + " " + p.Blocked
}

// listed is how many names a message has at most.
const listed = 3

// listPods names the first of the pods.
func listPods(pods []WorkloadPod) string {
	names := make([]string, len(pods))
	for i, pod := range pods {
		names[i] = pod.Namespace + "/" + pod.Name
	}
	if len(pods) == 1 {
		return "pod " + names[0]
	}
	return fmt.Sprintf("%d pods: %s", len(pods), list(names))
}

// list joins the first names.
func list(names []string) string {
	if len(names) > listed {
		return strings.Join(names[:listed], ", ") + " and more"
	}
	return strings.Join(names, ", ")
}
