package status

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/apply"
	"github.com/clusterpolicy/gpu-operator/internal/assess"
	"github.com/clusterpolicy/gpu-operator/internal/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/metrics"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/plan"
	"github.com/clusterpolicy/gpu-operator/internal/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/text"
)

// maxListed bounds status.nodes, so that the object is as large at 150 nodes as at 5,000.
const maxListed = 100

// maxListedBytes bounds them too, where names are very long or messages full of what JSON escapes: 100 entries of
// 63 characters' name and the longest message fit.
const maxListedBytes = 40 << 10

// maxMessage bounds the message of a node.
const maxMessage = 128

// maxOperandMessage bounds the message of an operand.
const maxOperandMessage = 1024

// maxConditionMessage bounds the message of a condition.
const maxConditionMessage = 1024

// Pass is what a pass has found and done, as far as it got.
type Pass struct {
	Namespace string
	// Fleet is what is known of the nodes.
	Fleet fleet.View
	// Behind is the number of nodes that are not assessed yet by what this pass has decided.
	Behind int
	// DaemonSets of the stack, by name.
	DaemonSets map[string]*appsv1.DaemonSet
	// Plan is without steps where the pass could not make one.
	Plan plan.Plan
	// Applied holds what came of applying each operand's objects.
	Applied map[operand.Name]Outcome
	// MissingFields are the fields that the definition of ClusterPolicy in the cluster does not have.
	MissingFields []string
	// Err is what stopped the pass, or went wrong beside the operands.
	Err error
}

// Outcome is what came of applying an operand's objects.
type Outcome struct {
	// Wrote tells that an object was written in this pass, so that what was observed of it is old.
	Wrote bool
	// Pending are the objects that are not as the spec says, and are left so as the policy is paused.
	Pending int
	// Err is all that went wrong.
	Err error
}

// Failed reports whether a call of the pass failed. What others own and what the API server calls invalid are no such
// calls: trying again does not help.
func (p Pass) Failed() bool {
	if p.Err != nil {
		return true
	}
	for _, outcome := range p.Applied {
		err := outcome.Err
		if err != nil && !errors.Is(err, apply.ErrConflict) && !errors.Is(err, ErrPrerequisite) && !isInvalid(err) {
			return true
		}
	}
	return false
}

// Conflicts reports whether an object that the pass wanted belongs to another owner. There is no event when it is gone:
// the caches hold what is the operator's.
func (p Pass) Conflicts() bool {
	for _, outcome := range p.Applied {
		if errors.Is(outcome.Err, apply.ErrConflict) {
			return true
		}
	}
	return false
}

// Compute returns the status of the policy by what the pass has found. A pass that could not observe leaves what was
// reported of operands and nodes as it was, and so does one whose decisions not all nodes are assessed by.
func Compute(policy *v1.ClusterPolicy, pass Pass) v1.ClusterPolicyStatus {
	status := *policy.Status.DeepCopy()
	status.Namespace = pass.Namespace
	if pass.Err == nil && pass.Behind > 0 {
		setAssessing(&status, pass)
		return status
	}
	status.ObservedGeneration = policy.Generation
	setFields(&status, policy.Spec)
	if len(pass.Plan.Steps) == 0 || pass.Behind > 0 {
		setConditions(&status, finding{ready: metav1.ConditionFalse, reason: v1.ReasonReconcileFailed, message: message(pass.Err), degraded: true})
		setPaused(&status, policy.Spec)
		return status
	}
	nodes := worstFirst(pass.Fleet)
	status.NodeSummary = summarise(nodes)
	status.Nodes = listNodes(nodes, policy.Status.Nodes)
	status.NodeSummary.Listed = int32(len(status.Nodes))
	status.Operands = operandStatuses(pass, nodes, policy.Status.Operands)
	status.Pools, status.NodePools = pools(pass, nodes), nodePools(pass, nodes)
	setConditions(&status, judge(pass, status))
	setPaused(&status, policy.Spec)
	setDefinition(&status, pass.MissingFields, pass.Namespace)
	return status
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// setAssessing reports how many nodes are not assessed yet by the policy as it is now. All else stays.
func setAssessing(status *v1.ClusterPolicyStatus, pass Pass) {
	if meta.FindStatusCondition(status.Conditions, v1.ConditionReady) == nil {
		setConditions(status, finding{ready: metav1.ConditionFalse, reason: v1.ReasonAssessing, message: "the nodes are being assessed"})
	}
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: v1.ConditionProgressing, Status: metav1.ConditionTrue, Reason: v1.ReasonAssessing, ObservedGeneration: status.ObservedGeneration,
		Message: fmt.Sprintf("%d of %d GPU nodes are still to be assessed", pass.Behind, len(pass.Fleet.Nodes)),
	})
}

// Ignored is the status of a policy beside the one in force.
func Ignored(policy *v1.ClusterPolicy, namespace, active string) v1.ClusterPolicyStatus {
	status := v1.ClusterPolicyStatus{
		State:              v1.StateIgnored,
		Namespace:          namespace,
		ObservedGeneration: policy.Generation,
		Conditions:         policy.DeepCopy().Status.Conditions,
	}
	meta.RemoveStatusCondition(&status.Conditions, v1.ConditionAuxiliaryReady)
	setFields(&status, policy.Spec)
	setConditions(&status, finding{
		ready: metav1.ConditionFalse, reason: v1.ReasonIgnored,
		message: "ClusterPolicy " + active + " is older and in force: delete one of the two",
	})
	status.State = v1.StateIgnored
	return status
}

// node is a managed node with the verdict on it that is shown.
type node struct {
	*fleet.Entry
	*assess.Assessment
}

// worstFirst are the managed nodes, worst first.
func worstFirst(view fleet.View) []node {
	nodes := make([]node, 0, len(view.Nodes))
	for _, entry := range view.Nodes {
		nodes = append(nodes, node{entry, entry.StatusAssessment()})
	}
	// By name they are sorted already.
	slices.SortStableFunc(nodes, func(a, b node) int { return cmp.Compare(a.severity(), b.severity()) })
	return nodes
}

func summarise(nodes []node) *v1.NodeSummary {
	summary := &v1.NodeSummary{}
	for _, node := range nodes {
		if node.Excluded {
			summary.Excluded++
			continue
		}
		summary.Total++
		switch node.State {
		case readiness.Ready:
			summary.Ready++
		case readiness.Progressing:
			summary.Progressing++
		case readiness.Failed:
			summary.Degraded++
		}
		if node.Outdated {
			summary.Upgrading++
		}
	}
	summary.ReadyOfTotal = ratio(int(summary.Ready), int(summary.Total))
	return summary
}

// Places counts the GPU nodes by where they are, those apart that are kept free of operands.
func Places(view fleet.View) map[metrics.Place]int {
	places := map[metrics.Place]int{}
	for _, entry := range view.Nodes {
		if shown := entry.StatusAssessment(); !shown.Excluded {
			places[place(shown)]++
		}
	}
	return places
}

func place(shown *assess.Assessment) metrics.Place {
	switch shown.State {
	case readiness.Ready:
		return metrics.Place{Stage: v1.StageValidated, State: metrics.Ready}
	case readiness.Failed:
		return metrics.Place{Stage: shown.Stage, State: metrics.Degraded}
	case readiness.Progressing:
	}
	return metrics.Place{Stage: shown.Stage, State: metrics.Progressing}
}

// severity orders nodes, worst first.
func (n node) severity() int {
	switch {
	case n.State == readiness.Failed:
		return 0
	case n.Excluded:
		return 3
	case n.State == readiness.Progressing:
		return 1
	case n.Outdated, n.Reason == v1.ReasonDiscoveryLabelsMissing:
		return 2
	default:
		return 4
	}
}

// listNodes writes the entries of the worst nodes. A failure whose cause is the same as before keeps
// its message, which may hold what changes with each attempt of a container.
func listNodes(nodes []node, before []v1.NodeStatus) []v1.NodeStatus {
	known := make(map[string]*v1.NodeStatus, len(before))
	for i := range before {
		known[before[i].Name] = &before[i]
	}
	entries, left := make([]v1.NodeStatus, 0, min(len(nodes), maxListed)), maxListedBytes
	for i := range nodes[:min(len(nodes), maxListed)] {
		entry := nodeStatus(nodes[i])
		if old := known[entry.Name]; old != nil && sameCause(old, &entry) && assess.MessageUpToDate(old.Message, nodes[i].Message, entry.Message) {
			entry.Message = old.Message
		}
		if left -= encodedSize(&entry); left < 0 {
			break
		}
		entries = append(entries, entry)
	}
	return entries
}

// encodedSize is how many bytes an entry has in JSON.
func encodedSize(entry *v1.NodeStatus) int {
	// What has a time and texts can be encoded.
	data, _ := json.Marshal(entry)
	return len(data)
}

func nodeStatus(n node) v1.NodeStatus {
	entry := v1.NodeStatus{
		Name:    n.Facts.Name,
		Ready:   n.Ready(),
		Stage:   n.Stage,
		Pool:    n.Facts.Pool,
		Operand: n.Operand,
		Reason:  n.Reason,
		Message: text.Truncate(n.Text(), maxMessage),
	}
	if !entry.Ready {
		entry.Since = new(metav1.NewTime(n.Since.Truncate(time.Second)))
	}
	return entry
}

func sameCause(a, b *v1.NodeStatus) bool {
	return a.Ready == b.Ready && a.Stage == b.Stage && a.Operand == b.Operand && a.Reason == b.Reason
}

// finding is what is to be said about the policy as a whole.
type finding struct {
	ready           metav1.ConditionStatus
	reason, message string
	degraded        bool
	progressing     bool
	// waits is what is progressing where the message is about a failure.
	waits string
	// auxiliary is what is to be said about the operands that are not needed to use GPUs; nil where that is not known.
	auxiliary *finding
}

// ongoing is what the condition Progressing reports: that of what GPUs need, if there is something.
func (f finding) ongoing() finding {
	switch {
	case f.progressing && f.degraded:
		return finding{progressing: true, reason: v1.ReasonOperandNotReady, message: f.waits}
	case !f.progressing && f.auxiliary != nil:
		return *f.auxiliary
	}
	return f
}

// failure is what the condition Degraded reports, in the same way.
func (f finding) failure() finding {
	if !f.degraded && f.auxiliary != nil {
		return *f.auxiliary
	}
	return f
}

func setConditions(status *v1.ClusterPolicyStatus, f finding) {
	status.State = v1.StateNotReady
	isError := metav1.ConditionTrue
	if f.ready == metav1.ConditionTrue {
		status.State, isError = v1.StateReady, metav1.ConditionFalse
	}
	set := func(kind string, value metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: kind, Status: value, Reason: reason, Message: text.Truncate(message, maxConditionMessage), ObservedGeneration: status.ObservedGeneration,
		})
	}
	set(v1.ConditionReady, f.ready, f.reason, f.message)
	flag := func(kind string, is bool, reason, message string) {
		if is {
			set(kind, metav1.ConditionTrue, reason, message)
			return
		}
		set(kind, metav1.ConditionFalse, v1.ReasonNone, "")
	}
	if a := f.auxiliary; a != nil {
		set(v1.ConditionAuxiliaryReady, a.ready, a.reason, a.message)
	}
	ongoing, failure := f.ongoing(), f.failure()
	flag(v1.ConditionProgressing, ongoing.progressing, ongoing.reason, ongoing.message)
	flag(v1.ConditionDegraded, failure.degraded, failure.reason, failure.message)
	set(v1.ConditionError, isError, f.reason, f.message)
}
