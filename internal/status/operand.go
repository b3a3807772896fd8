package status

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/apply"
	"github.com/clusterpolicy/gpu-operator/internal/assess"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/plan"
	"github.com/clusterpolicy/gpu-operator/internal/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/text"
)

// ErrPrerequisite means that an operand was not applied as one that it requires was not.
var ErrPrerequisite = errors.New("what it requires was not applied")

// onNodes is how an operand fares on the nodes that need it.
type onNodes struct {
	desired, ready   int
	paused           int
	failed, outdated []culprit
	// tainted are the nodes whose taints keep it off, and away the others to which the DaemonSet controller gives no pod, as
	// far as is known.
	tainted, away []culprit
	// said are the last words of what failed, starting what is on its way, for operands beside the ladder.
	said, starting []culprit
}

type culprit struct{ node, reason string }

// countDiscovery counts how node discovery fares: on every node, and on which nodes that are not discovered it fails.
// Where a node has been discovered, a pod that fails takes nothing away.
func countDiscovery(pass Pass, name operand.Name) onNodes {
	fares := onNodes{}
	for _, ds := range sortedDaemonSets(pass.DaemonSets, name) {
		fares.desired += int(ds.Status.DesiredNumberScheduled)
		fares.ready += int(ds.Status.NumberReady)
	}
	for _, entry := range pass.Fleet.Undiscovered {
		if verdict, found := entry.Discovering[name]; found && verdict.State == readiness.Failed {
			reason := assess.WithDetail(verdict.Reason, cmp.Or(verdict.Detail, verdict.Message))
			fares.failed = append(fares.failed, culprit{entry.Facts.Name, reason})
		}
	}
	return fares
}

// operandStatuses judges the operands. One that fails for the same cause as before keeps its message.
func operandStatuses(pass Pass, nodes []node, before []v1.OperandStatus) []v1.OperandStatus {
	var statuses []v1.OperandStatus
	for _, step := range pass.Plan.Steps {
		status := v1.OperandStatus{Name: string(step.Operand.Name), Version: version(step.Instances)}
		fares := count(step.Operand, nodes)
		if step.Operand.Discovers {
			fares = countDiscovery(pass, step.Operand.Name)
		}
		status.Desired, status.Ready = int32(fares.desired), int32(fares.ready)
		status.State, status.Reason, status.Message = judgeOperand(pass, step, fares)
		status.Message = text.Truncate(status.Message, maxOperandMessage)
		if status.State == v1.OperandDegraded {
			status.Message = sayDetail(status, fares.said, before)
		}
		statuses = append(statuses, status)
	}
	return statuses
}

// sayDetail is the message of an operand that fails with the last words of the first container that has some.
// As in listNodes, other words are no news while the cause is the same.
func sayDetail(status v1.OperandStatus, said []culprit, before []v1.OperandStatus) string {
	message := status.Message
	if at := slices.IndexFunc(said, func(c culprit) bool { return c.reason != "" }); at >= 0 {
		message = text.Truncate(fmt.Sprintf("%s: %s says: %s", message, said[at].node, said[at].reason), maxOperandMessage)
	}
	for i := range before {
		old := &before[i]
		if old.Name == status.Name && old.State == status.State && assess.MessageUpToDate(old.Message, status.Message, message) {
			return old.Message
		}
	}
	return message
}

func version(instances []operand.Instance) string {
	var versions []string
	for _, instance := range instances {
		if instance.Version != "" && (len(versions) == 0 || versions[len(versions)-1] != instance.Version) {
			versions = append(versions, instance.Version)
		}
	}
	return text.Truncate(strings.Join(versions, ", "), 256)
}

func count(o operand.Operand, nodes []node) onNodes {
	fares := onNodes{}
	for i := range nodes {
		verdict, expected := nodes[i].Operands[o.Name]
		if !expected {
			continue
		}
		fares.desired++
		if verdict.Reason == v1.ReasonOperandPaused {
			fares.paused++
		}
		node := nodes[i].Facts.Name
		switch why := whyAway(&nodes[i], verdict); why {
		case "":
		case v1.ReasonUntoleratedTaint:
			fares.tainted = append(fares.tainted, culprit{node, why})
		default:
			fares.away = append(fares.away, culprit{node, why})
		}
		switch {
		case verdict.State == readiness.Failed:
			reason := verdict.Reason
			if o.Stage == "" {
				// What is beside the ladder is not told with the node.
				reason = verdict.Message
				fares.said = append(fares.said, culprit{node, verdict.Detail})
			}
			fares.failed = append(fares.failed, culprit{node, reason})
		case verdict.State == readiness.Progressing && o.Stage == "":
			fares.starting = append(fares.starting, culprit{node, verdict.Message})
		case verdict.State == readiness.Ready:
			fares.ready++
			if verdict.Outdated {
				fares.outdated = append(fares.outdated, culprit{node, verdict.Reason})
			}
		}
	}
	return fares
}

// whyAway is why the DaemonSet controller may give the node no pod of an operand with this verdict; empty for no reason. One
// whose kubelet does not answer, or is not ready, it no longer counts.
func whyAway(n *node, verdict readiness.Verdict) string {
	switch {
	case n.Reason == v1.ReasonNodeUnreachable, n.Reason == v1.ReasonNodeNotReady:
		return n.Reason
	case verdict.Reason == v1.ReasonPodMissing, verdict.Reason == v1.ReasonUntoleratedTaint:
		return verdict.Reason
	}
	return ""
}

func judgeOperand(pass Pass, step plan.Step, fares onNodes) (v1.OperandState, string, string) {
	name := step.Operand.Name
	if step.Action != plan.Apply {
		return step.State, step.Reason, step.Message
	}
	if err := pass.Applied[name].Err; err != nil {
		state, reason := judgeFailure(err)
		return state, reason, err.Error()
	}
	if len(fares.failed) > 0 {
		return v1.OperandDegraded, v1.ReasonOperandFailed,
			fmt.Sprintf("fails on %d of %d nodes: %s", len(fares.failed), fares.desired, names(fares.failed))
	}
	if pending := pass.Applied[name].Pending; pending > 0 {
		return v1.OperandProgressing, v1.ReasonPaused, fmt.Sprintf("%d of its objects are not as the spec says; spec.paused leaves them so", pending)
	}
	if len(step.Operand.Workloads) == 0 {
		return judgeBackground(pass, step.Operand, fares)
	}
	if fares.desired == 0 {
		return v1.OperandNotNeeded, string(v1.OperandNotNeeded), "no node needs it: their hosts provide it, or their labels keep it off"
	}
	if pass.Applied[name].Wrote {
		return v1.OperandProgressing, v1.ReasonRollingOut, "its objects have just been changed"
	}
	if verdict := daemonSets(pass.DaemonSets, step, fares); verdict.State != readiness.Ready {
		return v1.OperandProgressing, verdict.Reason, verdict.Message
	}
	if fares.ready < fares.desired {
		return v1.OperandProgressing, v1.ReasonOperandNotReady,
			strings.TrimSuffix(fmt.Sprintf("ready on %s nodes: %s", ratio(fares.ready, fares.desired), names(fares.starting)), ": ")
	}
	if len(fares.outdated) > 0 {
		return v1.OperandProgressing, v1.ReasonUpgradePending, fmt.Sprintf(
			"outdated on %d of %d nodes: %s; delete its pod on a node to update it there",
			len(fares.outdated), fares.desired, names(fares.outdated))
	}
	return v1.OperandReady, "", ""
}

// judgeBackground judges an operand on which no GPU node waits. Node discovery, too, is ready while it
// looks at a node that joins: nothing is missed yet. Only as long as nobody knows any node, all wait
// for it.
func judgeBackground(pass Pass, o operand.Operand, fares onNodes) (v1.OperandState, string, string) {
	looking := o.Discovers && (fares.ready < fares.desired || pass.Applied[o.Name].Wrote)
	if looking && !pass.Fleet.AnyDiscovered {
		return v1.OperandProgressing, v1.ReasonOperandNotReady, fmt.Sprintf("has looked at %s nodes", ratio(fares.ready, fares.desired))
	}
	return v1.OperandReady, "", ""
}

// judgeFailure tells whose turn it is after an object could not be applied.
func judgeFailure(err error) (v1.OperandState, string) {
	switch {
	case errors.Is(err, apply.ErrConflict):
		return v1.OperandConflict, v1.ReasonConflict
	case isInvalid(err):
		return v1.OperandInvalid, v1.ReasonInvalidSpec
	case errors.Is(err, ErrPrerequisite):
		return v1.OperandWaiting, v1.ReasonWaitingForOperand
	case errors.As(err, new(*apply.AlteredError)):
		return v1.OperandError, v1.ReasonAltered
	default:
		return v1.OperandError, v1.ReasonReconcileFailed
	}
}

// isInvalid tells whether the spec asks for what cannot be: nothing but another spec helps.
func isInvalid(err error) bool {
	return apierrors.IsInvalid(err) || errors.As(err, new(operand.InvalidSpec))
}

// daemonSets judges the operand's DaemonSets together: whether all exist and are taken up, and run on
// as many nodes as the plan expects.
func daemonSets(live map[string]*appsv1.DaemonSet, step plan.Step, fares onNodes) readiness.Verdict {
	found, scheduled := 0, 0
	for _, ds := range sortedDaemonSets(live, step.Operand.Name) {
		found++
		if verdict := readiness.DaemonSet(ds); verdict.State != readiness.Ready {
			return verdict
		}
		scheduled += int(ds.Status.DesiredNumberScheduled)
	}
	if found < len(step.Instances) {
		return readiness.Verdict{State: readiness.Progressing, Reason: v1.ReasonRollingOut, Message: "its DaemonSets are being created"}
	}
	verdict := readiness.Scheduled(scheduled, fares.desired-fares.paused)
	switch {
	case verdict.State == readiness.Ready:
	case len(fares.away) > 0:
		verdict.Message += ": " + names(append(fares.away, fares.tainted...))
	case len(fares.tainted) > 0:
		verdict.Message = fmt.Sprintf("kept off %d of %d nodes: %s", len(fares.tainted), fares.desired, names(fares.tainted))
	}
	return verdict
}

func sortedDaemonSets(live map[string]*appsv1.DaemonSet, name operand.Name) []*appsv1.DaemonSet {
	var found []*appsv1.DaemonSet
	for _, ds := range live {
		if ds.Labels[labels.Operand] == string(name) && ds.DeletionTimestamp == nil {
			found = append(found, ds)
		}
	}
	sort.Slice(found, func(i, j int) bool { return found[i].Name < found[j].Name })
	return found
}

// names lists the first culprits and counts the others.
func names(culprits []culprit) string {
	const most = 3
	sort.Slice(culprits, func(i, j int) bool { return culprits[i].node < culprits[j].node })
	var parts []string
	for _, c := range culprits[:min(len(culprits), most)] {
		parts = append(parts, fmt.Sprintf("%s (%s)", c.node, c.reason))
	}
	if more := len(culprits) - most; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, ", ")
}

func ratio(a, b int) string { return fmt.Sprintf("%d/%d", a, b) }
