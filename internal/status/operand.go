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
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/text"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/stack/apply"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

// ErrPrerequisite means that an operand was not applied because one that it requires was not.
var ErrPrerequisite = errors.New("which was not applied")

// ErrNotTakenOver means that what NVIDIA's operator has left of an operand cannot be taken over yet.
var ErrNotTakenOver = errors.New("not taken over")

// operandCounts counts the nodes that need an operand, by its state there.
type operandCounts struct {
	desired, ready int
	paused         int
	// replacing counts the nodes whose pod is of an older template and is being replaced.
	replacing        int
	failed, outdated []nodeReason
	// undeclared are the nodes that keep a ready driver which NVIDIADriver objects do not declare, and why is the first
	// message about one.
	undeclared []nodeReason
	why        string
	// tainted are the nodes whose taints the DaemonSet does not tolerate, unscheduled the others for which the DaemonSet
	// controller seems to create no pod.
	tainted, unscheduled []nodeReason
	// details are those of the failed verdicts, starting the messages of the progressing ones, of operands without a
	// stage.
	details, starting []nodeReason
}

// nodeReason is the name of a node with a reason or message.
type nodeReason struct{ node, reason string }

// countDiscovery counts node discovery on all nodes. It counts as failed only on undiscovered nodes: a discovered node
// keeps its labels when the pod fails.
func countDiscovery(in Input, name operand.Name) operandCounts {
	counts := operandCounts{}
	for _, ds := range sortedDaemonSets(in.DaemonSets, name) {
		counts.desired += int(ds.Status.DesiredNumberScheduled)
		counts.ready += int(ds.Status.NumberReady)
	}
	for _, entry := range in.View.Undiscovered {
		if verdict, found := entry.Discovering[name]; found && verdict.State == readiness.Failed {
			reason := assess.WithDetail(verdict.Reason, cmp.Or(verdict.Detail, verdict.Message))
			counts.failed = append(counts.failed, nodeReason{entry.Facts.Name, reason})
		}
	}
	return counts
}

// operandStatuses returns the status of each operand. One that fails for the same cause as before keeps its message.
func operandStatuses(in Input, nodes []node, before []v1.OperandStatus) []v1.OperandStatus {
	var statuses []v1.OperandStatus
	for _, step := range in.Plan.Steps {
		status := v1.OperandStatus{Name: string(step.Operand.Name), Version: version(step.Instances)}
		counts := countOperand(step.Operand, nodes)
		if step.Operand.Discovers {
			counts = countDiscovery(in, step.Operand.Name)
		}
		status.Desired, status.Ready = int32(counts.desired), int32(counts.ready)
		status.State, status.Reason, status.Message = operandState(in, step, counts)
		status.Message = text.Truncate(status.Message, maxOperandMessage)
		if status.State == v1.OperandDegraded {
			status.Message = withDetail(status, counts.details, before)
		}
		statuses = append(statuses, status)
	}
	return statuses
}

// withDetail returns the message of a failing operand with the first detail of a container. As in listNodes, another
// detail does not change the message while the cause is the same.
func withDetail(status v1.OperandStatus, details []nodeReason, before []v1.OperandStatus) string {
	message := status.Message
	if at := slices.IndexFunc(details, func(n nodeReason) bool { return n.reason != "" }); at >= 0 {
		message = fmt.Sprintf("%s: on %s: %s", message, details[at].node, details[at].reason)
		message = text.Truncate(message, maxOperandMessage)
	}
	for i := range before {
		old := &before[i]
		if old.Name == status.Name && old.State == status.State && assess.MessageUpToDate(
			old.Message, status.Message, message,
		) {
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

// countOperand counts the nodes on which the operand is expected.
func countOperand(o operand.Operand, nodes []node) operandCounts {
	counts := operandCounts{}
	for i := range nodes {
		if verdict, expected := nodes[i].Operands[o.Name]; expected {
			counts.desired++
			counts.add(&nodes[i], verdict, o.Stage != "")
		}
	}
	return counts
}

// add counts a node with this verdict on an operand. The status of a node reports only operands that have a stage.
func (c *operandCounts) add(n *node, verdict readiness.Verdict, hasStage bool) {
	name := n.Facts.Name
	if verdict.Reason == v1.ReasonOperandPaused {
		c.paused++
	}
	if verdict.BeingReplaced {
		c.replacing++
	}
	switch reason := noPodReason(n, verdict); reason {
	case "":
	case v1.ReasonUntoleratedTaint:
		c.tainted = append(c.tainted, nodeReason{name, reason})
	default:
		c.unscheduled = append(c.unscheduled, nodeReason{name, reason})
	}
	switch {
	case verdict.State == readiness.Failed && hasStage:
		c.failed = append(c.failed, nodeReason{name, verdict.Reason})
	case verdict.State == readiness.Failed:
		c.failed = append(c.failed, nodeReason{name, verdict.Message})
		c.details = append(c.details, nodeReason{name, verdict.Detail})
	case verdict.State == readiness.Progressing && !hasStage:
		c.starting = append(c.starting, nodeReason{name, verdict.Message})
	case verdict.State == readiness.Ready:
		c.addReady(name, verdict)
	}
}

// addReady counts a node on which the operand is ready.
func (c *operandCounts) addReady(name string, verdict readiness.Verdict) {
	c.ready++
	switch {
	case verdict.Outdated:
		c.outdated = append(c.outdated, nodeReason{name, verdict.Reason})
	case plan.IsUndeclared(verdict.Reason):
		c.undeclared = append(c.undeclared, nodeReason{name, verdict.Reason})
		c.why = cmp.Or(c.why, name+": "+verdict.Message)
	}
}

// noPodReason returns why the DaemonSet controller may create no pod of an operand with this verdict on the node; empty
// for no reason. The controller does not count nodes that are not ready.
func noPodReason(n *node, verdict readiness.Verdict) string {
	switch {
	case n.Reason == v1.ReasonNodeUnreachable, n.Reason == v1.ReasonNodeNotReady:
		return n.Reason
	case verdict.Reason == v1.ReasonPodMissing, verdict.Reason == v1.ReasonUntoleratedTaint:
		return verdict.Reason
	}
	return ""
}

// decidedStatus returns a status with the operands alone whose state depends on no node.
func decidedStatus(in Input) v1.ClusterPolicyStatus {
	status := v1.ClusterPolicyStatus{}
	for _, step := range in.Plan.Steps {
		if state, reason, message := decidedState(in, step); state != "" {
			status.Operands = append(status.Operands, v1.OperandStatus{
				Name: string(step.Operand.Name), State: state, Reason: reason, Message: text.Truncate(message, maxOperandMessage),
			})
		}
	}
	return status
}

// decidedState returns the state of an operand that is not to be applied, or could not be; empty for all others.
func decidedState(in Input, step plan.Step) (v1.OperandState, string, string) {
	if step.Action != plan.Apply {
		return step.State, step.Reason, step.Message
	}
	if err := in.Applied[step.Operand.Name].Err; err != nil {
		state, reason := applyErrorState(err)
		return state, reason, err.Error()
	}
	return "", "", ""
}

func operandState(in Input, step plan.Step, counts operandCounts) (v1.OperandState, string, string) {
	name := step.Operand.Name
	if state, reason, message := decidedState(in, step); state != "" {
		return state, reason, message
	}
	if len(counts.failed) > 0 {
		return v1.OperandDegraded, v1.ReasonOperandFailed,
			fmt.Sprintf("fails on %d of %d nodes: %s", len(counts.failed), counts.desired, joinNodes(counts.failed))
	}
	if pending := in.Applied[name].Pending; pending > 0 {
		return v1.OperandProgressing, v1.ReasonPaused,
			fmt.Sprintf("%d of its objects differ from the spec and are not updated while spec.paused is true", pending)
	}
	if len(step.Operand.Workloads) == 0 {
		return backgroundState(in, step.Operand, counts)
	}
	if counts.desired == 0 {
		return v1.OperandNotNeeded, string(v1.OperandNotNeeded), whyUnneeded(in.Plan)
	}
	if len(counts.undeclared) > 0 {
		message := fmt.Sprintf("its pods stay as they are on %d of %d nodes: %s; %s",
			len(counts.undeclared), counts.desired, joinNodes(counts.undeclared), counts.why)
		return v1.OperandWaiting, counts.undeclared[0].reason, message
	}
	if in.Applied[name].Wrote {
		return v1.OperandProgressing, v1.ReasonRollingOut,
			"its objects were just applied: waiting for the DaemonSet controller to observe them"
	}
	if verdict := checkDaemonSets(in.DaemonSets, step, counts); verdict.State != readiness.Ready {
		return v1.OperandProgressing, verdict.Reason, verdict.Message
	}
	if counts.ready < counts.desired {
		message := fmt.Sprintf("ready on %d of %d nodes: %s", counts.ready, counts.desired, joinNodes(counts.starting))
		return v1.OperandProgressing, v1.ReasonOperandNotReady, strings.TrimSuffix(message, ": ")
	}
	if len(counts.outdated) > 0 {
		return v1.OperandProgressing, v1.ReasonUpgradePending, fmt.Sprintf(
			"its pods are outdated on %d of %d nodes: %s; %s",
			len(counts.outdated), counts.desired, joinNodes(counts.outdated), replacement(in, step.Operand))
	}
	return v1.OperandReady, "", pendingRestart(in.DaemonSets, step.Operand)
}

// whyUnneeded describes why no node needs an operand that is installed.
func whyUnneeded(p plan.Plan) string {
	if p.StandIns {
		return "no node needs it yet: it is installed because spec.operator.keepWithoutNodes is true"
	}
	return "no node needs it: the hosts provide it, or node labels exclude it"
}

// replacement describes how outdated pods of an operand are replaced.
func replacement(in Input, o operand.Operand) string {
	switch {
	case !o.PerPool:
		return "delete the pod of a node to replace it"
	case *in.Plan.Input.Spec.Driver.UpgradePolicy.AutoUpgrade:
		return "their upgrade is pending"
	}
	return fmt.Sprintf("annotate a node with %s=%s to upgrade it", labels.UpgradeRequested, labels.True)
}

// pendingRestart reports the pods that run as they should, but not from the current template, since nothing replaces
// them for a change of insignificant fields; empty if there are none.
func pendingRestart(live map[string]*appsv1.DaemonSet, o operand.Operand) string {
	pending, scheduled := int32(0), int32(0)
	for _, ds := range sortedDaemonSets(live, o.Name) {
		status := &ds.Status
		scheduled += status.DesiredNumberScheduled
		if ds.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType && status.ObservedGeneration >= ds.Generation {
			pending += max(0, status.DesiredNumberScheduled-status.UpdatedNumberScheduled)
		}
	}
	if pending == 0 {
		return ""
	}
	return fmt.Sprintf(
		"pods on %d of %d nodes get changed tolerations, priority, resources, registries, probes or labels "+
			"when they are next restarted",
		pending,
		scheduled,
	)
}

// backgroundState returns the state of an operand that does not run on GPU nodes in particular. Node discovery is
// ready even while it has not labelled a new node yet, unless no node at all is discovered.
func backgroundState(in Input, o operand.Operand, counts operandCounts) (v1.OperandState, string, string) {
	discovering := o.Discovers && (counts.ready < counts.desired || in.Applied[o.Name].Wrote)
	if discovering && !in.View.AnyDiscovered {
		return v1.OperandProgressing, v1.ReasonOperandNotReady,
			fmt.Sprintf("its pods are ready on %d of %d nodes, and no node has discovery labels yet",
				counts.ready, counts.desired)
	}
	return v1.OperandReady, "", ""
}

// applyErrorState returns the state and reason of an operand with an object that could not be applied.
func applyErrorState(err error) (v1.OperandState, string) {
	switch {
	case errors.Is(err, apply.ErrConflict):
		return v1.OperandConflict, v1.ReasonConflict
	case isInvalid(err):
		return v1.OperandInvalid, v1.ReasonInvalidSpec
	case errors.Is(err, ErrNotTakenOver):
		return v1.OperandWaiting, v1.ReasonNotTakenOver
	case errors.Is(err, ErrPrerequisite):
		return v1.OperandWaiting, v1.ReasonWaitingForOperand
	case errors.As(err, new(*apply.AlteredError)):
		return v1.OperandError, v1.ReasonAltered
	default:
		return v1.OperandError, v1.ReasonReconcileFailed
	}
}

// isInvalid reports whether only a change of the spec can resolve the error.
func isInvalid(err error) bool {
	return apierrors.IsInvalid(err) || errors.As(err, new(operand.InvalidSpec))
}

// checkDaemonSets returns one verdict for all DaemonSets of the operand: Ready if all exist, their controller has
// observed them, and they run on as many nodes as the plan expects. Its pods are newer than the controller's counts.
func checkDaemonSets(live map[string]*appsv1.DaemonSet, step plan.Step, counts operandCounts) readiness.Verdict {
	found, scheduled, observed := 0, 0, true
	inSync := counts.replacing == 0 && counts.ready == counts.desired
	for _, ds := range sortedDaemonSets(live, step.Operand.Name) {
		found++
		// If all pods work and none is outdated, only insignificant fields are rolled out.
		if verdict := readiness.DaemonSet(ds); verdict.State != readiness.Ready && !inSync {
			return verdict
		}
		scheduled += int(ds.Status.DesiredNumberScheduled)
		observed = observed && ds.Status.ObservedGeneration >= ds.Generation
	}
	if found < len(step.Instances) {
		return readiness.Verdict{
			State: readiness.Progressing, Reason: v1.ReasonRollingOut, Message: "its DaemonSets are being created",
		}
	}
	verdict := readiness.CheckScheduled(scheduled, counts.desired-counts.paused)
	switch {
	case verdict.State == readiness.Ready:
	case len(counts.unscheduled) > 0:
		verdict.Message += ": " + joinNodes(append(counts.unscheduled, counts.tainted...))
	case len(counts.tainted) > 0:
		verdict.Message = fmt.Sprintf("not scheduled on %d of %d nodes: %s",
			len(counts.tainted), counts.desired, joinNodes(counts.tainted))
	case inSync && observed:
		// The pods work on all nodes, so that the counts of a DaemonSet are older than they are.
		return readiness.Verdict{}
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

// joinNodes names the first few of the nodes, and counts the others.
func joinNodes(nodes []nodeReason) string {
	const maxNamed = 3
	sort.Slice(nodes, func(i, j int) bool { return nodes[i].node < nodes[j].node })
	var parts []string
	for _, n := range nodes[:min(len(nodes), maxNamed)] {
		parts = append(parts, fmt.Sprintf("%s (%s)", n.node, n.reason))
	}
	if more := len(nodes) - maxNamed; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, ", ")
}

func ratio(a, b int) string { return fmt.Sprintf("%d/%d", a, b) }
