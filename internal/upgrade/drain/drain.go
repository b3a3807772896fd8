package drain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/text"
)

// MaxMessage is the limit of a message in bytes.
const MaxMessage = 128

// NotReady is the message of a node whose kubelet does not report.
const NotReady = "the node's condition Ready is not True"

// DeadTime is how long a cordoned node with its old driver may not report before its upgrade, or its drain for a MIG
// layout, fails: no limit that says how long pods may take is meant for a node that is gone. It is also how long the
// calls may fail that read its pods or pull its images.
const DeadTime = 15 * time.Minute

// Step is how far a drain has got.
type Step int

// The steps in their order.
const (
	// Jobs: pods that waitForCompletion selects still run, and nothing is evicted.
	Jobs Step = iota
	// Users: the pods that use GPUs are evicted.
	Users
	// All: all pods are evicted, since the eviction of those with GPUs took too long.
	All
)

// blocks are the blocks of the upgradePolicy that limit the steps.
var blocks = [...]string{Jobs: "waitForCompletion", Users: "podDeletion", All: "drain"}

// Drain is what is known of the drain of a node.
type Drain struct {
	// WaitsForJobs: waitForCompletion selects pods. Drains: drain is enabled, so that All follows Users.
	WaitsForJobs, Drains bool
	// Timeouts limit the steps; 0 means no limit.
	Timeouts [All + 1]time.Duration
	// Since is when the step began.
	Since, Now time.Time
	// KubeletReady: the kubelet reports. NotReadySince is since when it does not; zero if it does, or if unknown.
	KubeletReady  bool
	NotReadySince time.Time
	// Workload is nil if the pods are not read.
	Workload *Workload
}

// Workload are the pods of users on a node that have not ended.
type Workload struct {
	// Users are the pods that hold GPUs.
	Users []Pod
	// Jobs are the pods that waitForCompletion selects.
	Jobs []Pod
	// Others are the further pods that a drain evicts.
	Others []Pod
}

// Pod is a pod of a user.
type Pod struct {
	Namespace, Name string
	UID             types.UID
	// Ending: it is being deleted.
	Ending bool
	// Blocked is why it is not evicted, such as "needs spec.driver.upgradePolicy.podDeletion.force: it has no
	// controller"; empty if it may be. The answer of the API server to the last attempt counts: "PDB team-a/web allows 0
	// disruptions".
	Blocked string
	// Forbidden: the policy forbids its eviction, so that it is not tried.
	Forbidden bool
	// Lasting: it is forbidden also while all pods of the node are drained.
	Lasting bool
}

// Answer is what a step does now.
type Answer struct {
	// Done: no pod is left that the step is for.
	Done bool
	// Evict are the pods to evict now, nil for none, and Why they are.
	Evict []Pod
	Why   string
	// Held: the step does not go on by itself. Message, of at most MaxMessage bytes, says what it waits for, and so does
	// Reason, of package api/v1; empty while the pods are not read.
	Held            bool
	Reason, Message string
	// Until is when the node counts as dead, and Deadline when the step has to end; zero for never.
	Until, Deadline time.Time
	// Passed says that the Deadline has passed, by which option; empty if it has not.
	Passed string
}

// First returns the step with which the drain begins. The pods must be read.
func (d *Drain) First() Step {
	if d.WaitsForJobs && len(d.Workload.Jobs) > 0 {
		return Jobs
	}
	return Users
}

// IsLast reports whether the drain fails when the deadline of the step has passed.
func (d *Drain) IsLast(step Step) bool { return step == All || step == Users && !d.Drains }

// Idle reports whether it is known that no pod uses the GPUs.
func (d *Drain) Idle() bool { return d.known() && len(d.Workload.Users) == 0 }

func (d *Drain) known() bool { return d.KubeletReady && d.Workload != nil }

// Dead is the message of a node that has not reported for DeadTime; empty for any other.
func (d *Drain) Dead() string {
	if d.KubeletReady || d.NotReadySince.IsZero() || d.Now.Before(d.NotReadySince.Add(DeadTime)) {
		return ""
	}
	return NotReady + " since " + d.NotReadySince.UTC().Format(time.RFC3339)
}

// Next returns what the step does now, or that its deadline has passed.
func (d *Drain) Next(step Step) Answer {
	answer := d.Left(step)
	if !answer.Done {
		answer.Deadline, answer.Passed = d.Deadline(step)
	}
	return answer
}

// Deadline returns when the step has to end, zero for never, and once that has passed a text that says by which option.
func (d *Drain) Deadline(step Step) (deadline time.Time, passed string) {
	if d.Timeouts[step] == 0 {
		return time.Time{}, ""
	}
	deadline = d.Since.Add(d.Timeouts[step])
	if !d.Now.Before(deadline) {
		passed = blocks[step] + ".timeoutSeconds has passed"
	}
	return deadline, passed
}

// Left returns what the step does now, whatever its deadline.
func (d *Drain) Left(step Step) Answer {
	switch {
	case !d.known():
		return d.unknown()
	case step == Jobs && len(d.Workload.Jobs) > 0:
		return waits(false, v1.ReasonUpgradeWaitingForJobs, "waits for "+Names(d.Workload.Jobs))
	case step == Jobs || d.Idle():
		return Answer{Done: true}
	case step == All:
		return evict(slices.Concat(d.Workload.Users, d.Workload.Others), "the node is drained")
	default:
		return evict(d.Workload.Users, "they use the GPUs")
	}
}

// unknown is the answer while the pods are not known: the kubelet does not report, or they were not read.
func (d *Drain) unknown() Answer {
	if d.KubeletReady {
		return waits(false, "", "the pods on the node are not read yet")
	}
	answer := waits(true, v1.ReasonUpgradeNodeNotReady, NotReady)
	if d.Dead() == "" && !d.NotReadySince.IsZero() {
		answer.Until = d.NotReadySince.Add(DeadTime)
	}
	return answer
}

// Obstacle describes the first pod with GPUs that neither the step nor a later one evicts. In the step Jobs those that
// are waited for are none. It is empty if there is none, or while the pods are not known.
func (d *Drain) Obstacle(step Step) string {
	if !d.known() {
		return ""
	}
	evictsAll := step == All || d.Drains && d.Timeouts[Users] > 0
	for _, pod := range d.Workload.Users {
		isJob := step == Jobs && slices.ContainsFunc(d.Workload.Jobs, func(job Pod) bool { return job.UID == pod.UID })
		if pod.Forbidden && !pod.Ending && !isJob && (pod.Lasting || !evictsAll) {
			return Names([]Pod{pod}) + " " + pod.Blocked
		}
	}
	return ""
}

func waits(held bool, reason, message string) Answer {
	return Answer{Held: held, Reason: reason, Message: text.Truncate(message, MaxMessage)}
}

// evict evicts the pods. It names those that cannot be evicted, or those that are ending.
func evict(pods []Pod, why string) Answer {
	var due []Pod
	var blocked []string
	for _, pod := range pods {
		if !pod.Ending && !pod.Forbidden {
			due = append(due, pod)
		}
		switch {
		case pod.Blocked == "" || pod.Ending:
		case pod.Forbidden:
			blocked = append(blocked, Names([]Pod{pod})+" "+pod.Blocked)
		default:
			blocked = append(blocked, pod.Blocked+": "+Names([]Pod{pod}))
		}
	}
	answer := waits(false, v1.ReasonUpgradeEvicting, "waits for the end of "+Names(pods))
	if len(blocked) > 0 {
		answer = waits(true, v1.ReasonUpgradeBlocked, describeBlocked(blocked))
	}
	answer.Evict, answer.Why = due, why
	return answer
}

// describeBlocked describes all pods if that fits into a message, else the first one, and counts the others.
func describeBlocked(blocked []string) string {
	all := strings.Join(blocked, "; ")
	if len(blocked) == 1 || len(all) <= MaxMessage {
		return all
	}
	return fmt.Sprintf("%d pods are blocked: %s", len(blocked), blocked[0])
}

// Names names the first of the pods: "pod team-a/web", or "2 pods: team-a/web, team-b/job".
func Names(pods []Pod) string {
	names := make([]string, len(pods))
	for i, pod := range pods {
		names[i] = pod.Namespace + "/" + pod.Name
	}
	if len(pods) == 1 {
		return "pod " + names[0]
	}
	return fmt.Sprintf("%d pods: %s", len(pods), text.List(names))
}
