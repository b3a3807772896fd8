package status

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/text"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/stack/apply"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/status/conditions"
)

const (
	// maxListed bounds the entries of status.nodes, so that the object is as large at 5,000 nodes as at 150.
	maxListed = 100
	// maxListedBytes bounds their size in JSON. Some 95 entries with names of 63 characters and the longest message fit,
	// unless JSON escapes many of the characters.
	maxListedBytes = 52 << 10
	// The longest messages, in bytes.
	maxMessage        = 256
	maxOperandMessage = 1024
)

// Input is the result of a pass, as far as it got.
type Input struct {
	Namespace string
	View      fleet.View
	// Unassessed is the number of nodes that are not assessed yet by the decisions of this pass.
	Unassessed int
	// DaemonSets of the stack, by name.
	DaemonSets map[string]*appsv1.DaemonSet
	// Plan has no steps if the pass could not compute one.
	Plan    plan.Plan
	Applied map[operand.Name]ApplyResult
	// MissingFields are the fields that the CustomResourceDefinition in the cluster does not have.
	MissingFields []string
	// MissingDriverFields are those of the definition of NVIDIADriver.
	MissingDriverFields []string
	// IgnoredVariables has a sentence for each variable of the operator that is set and has no effect.
	IgnoredVariables []string
	// Notes has a sentence for each doubtful thing about the cluster that concerns all policies.
	Notes []string
	// Undecodable says why the spec of the policy cannot be decoded, so that the pass has changed nothing; empty if it
	// can.
	Undecodable string
	// Err is what stopped the pass, or failed outside the operands.
	Err error

	// nodes of the View by severity, for the checks.
	nodes []node
}

// ApplyResult is the result of applying an operand's objects.
type ApplyResult struct {
	// Wrote is true if an object was written in this pass, so that the observed one is out of date. A DaemonSet does not
	// count if its pods stay as they are.
	Wrote bool
	// Pending is the number of objects that differ from the spec and are not written because the policy is paused.
	Pending int
	// Err joins all errors.
	Err error
}

// NeedsRetry reports whether the pass should be retried. A retry does not resolve conflicts with another owner,
// objects that the API server rejects as invalid, or what nodes have to change before an operand is taken over.
func (in Input) NeedsRetry() bool {
	if in.Err != nil {
		return true
	}
	for _, result := range in.Applied {
		err := result.Err
		if err != nil && !errors.Is(err, apply.ErrConflict) && !errors.Is(err, ErrPrerequisite) &&
			!errors.Is(err, ErrNotTakenOver) && !isInvalid(err) {
			return true
		}
	}
	return false
}

// Conflicts reports whether an object to apply belongs to another owner. No watch event reports its deletion, as the
// caches contain the operator's objects only.
func (in Input) Conflicts() bool {
	for _, result := range in.Applied {
		if errors.Is(result.Err, apply.ErrConflict) {
			return true
		}
	}
	return false
}

// Compute returns the status of the policy after a pass. If the pass failed to read the cluster, or nodes are not
// assessed by its decisions yet, the operands and nodes are those of the previous status.
func Compute(policy *v1.ClusterPolicy, in Input) v1.ClusterPolicyStatus {
	status := *policy.Status.DeepCopy()
	status.Namespace = in.Namespace
	conditions.ClearOtherOperator(&status)
	if in.Err == nil && in.Unassessed > 0 && in.Undecodable == "" {
		setAssessing(&status, in, policy.Generation)
		return status
	}
	status.ObservedGeneration = policy.Generation
	conditions.SetFieldNotes(&status, policy.Spec, in.IgnoredVariables,
		// A long message is cut: the notes of the chart have been printed where Helm prints any.
		slices.Concat(in.Plan.Doubtful(), in.Notes, conditions.ChartNotes(policy)))
	if len(in.Plan.Steps) == 0 || in.Unassessed > 0 {
		found := cmp.Or(checkDecoding(in, status), decidedFinding(in), failure(v1.ReasonReconcileFailed, errorText(in.Err)))
		setConditions(&status, *found)
		setPaused(&status, policy.Spec)
		return status
	}
	nodes := worstFirst(in.View)
	in.nodes = nodes
	status.Upgrade = upgradeStatus(in, policy.Status.Upgrade)
	status.NodeSummary = summarise(nodes)
	status.Nodes = listNodes(nodes, policy.Status.Nodes)
	status.NodeSummary.Listed = int32(len(status.Nodes))
	status.Operands = operandStatuses(in, nodes, policy.Status.Operands)
	status.Pools, status.NodePools = driverPools(in, nodes), nodePools(in, nodes)
	setConditions(&status, checkAll(in, status))
	setPaused(&status, policy.Spec)
	conditions.SetCRDOutdated(&status, in.MissingFields, in.MissingDriverFields, in.Namespace)
	conditions.SetAdmissionPolicyMissing(&status, in.Plan.Input)
	conditions.SetOutdatedComponents(&status, outdatedVersions(in, nodes))
	return status
}

// errorText returns the message of a failed pass. It is never empty, also if the pass has neither a plan nor an error.
func errorText(err error) string {
	if err == nil || err.Error() == "" {
		return "the operator could not determine which objects to apply, and got no error: see its log"
	}
	return err.Error()
}

// setAssessing reports how many nodes are not assessed yet by the current policy, and keeps all else, but for what is
// wrong meanwhile: that the policy is ignored, and that only a person can change its state. The latter is decided again
// if the status is of the current generation, as it is after a restart of the operator: kstatus would call a policy
// that stays wrong in progress. The conditions of a status of another generation are not about the current spec.
func setAssessing(status *v1.ClusterPolicyStatus, in Input, generation int64) {
	var stalled *finding
	if status.ObservedGeneration == generation {
		stalled = decidedFinding(in)
	}
	// The default of a policy without status is not valid in a condition.
	status.ObservedGeneration = max(status.ObservedGeneration, 0)
	meta.RemoveStatusCondition(&status.Conditions, v1.ConditionStalled)
	ready := meta.FindStatusCondition(status.Conditions, v1.ConditionReady)
	switch {
	case stalled != nil:
		setConditions(status, *stalled)
	case ready == nil, ready.Reason == v1.ReasonIgnored:
		setConditions(status, finding{
			ready: metav1.ConditionFalse, reason: v1.ReasonAssessing,
			message: "the GPU nodes are being assessed against the current spec",
		})
	}
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: v1.ConditionProgressing, Status: metav1.ConditionTrue, Reason: v1.ReasonAssessing,
		ObservedGeneration: status.ObservedGeneration,
		Message: fmt.Sprintf("%d of %d GPU nodes are not assessed against the current spec yet",
			in.Unassessed, len(in.View.Nodes)),
	})
}

// withoutStack returns the status of a policy that has no stack, with the conditions that do not concern one.
func withoutStack(policy *v1.ClusterPolicy, namespace string) v1.ClusterPolicyStatus {
	status := v1.ClusterPolicyStatus{
		Namespace:          namespace,
		ObservedGeneration: policy.Generation,
		Conditions:         policy.DeepCopy().Status.Conditions,
	}
	meta.RemoveStatusCondition(&status.Conditions, v1.ConditionAuxiliaryReady)
	meta.RemoveStatusCondition(&status.Conditions, v1.ConditionOutdatedComponent)
	conditions.ClearOtherOperator(&status)
	return status
}

// Ignored returns the status of a policy that is not the active one.
func Ignored(policy *v1.ClusterPolicy, namespace string, active *v1.ClusterPolicy) v1.ClusterPolicyStatus {
	status := withoutStack(policy, namespace)
	conditions.SetFieldNotes(&status, policy.Spec, nil, nil)
	found := finding{
		ready: metav1.ConditionFalse, reason: v1.ReasonIgnored,
		stalled: true,
		message: "ClusterPolicy " + active.Name + " is active and takes precedence, so this one has no effect: " +
			"delete one of them",
	}
	if cause := policy.Annotations[labels.Undecodable]; cause != "" {
		found.reason, found.message = v1.ReasonUndecodable, "the spec "+cause+"; ClusterPolicy "+active.Name+" is active"
		// Without the finalizer it was never applied, and an older one replaces it.
		if slices.Contains(active.Finalizers, labels.RemovalFinalizer) {
			found.message += ", and this one stays ignored also after its correction, until that one is deleted"
		}
	}
	setConditions(&status, found)
	status.State = v1.StateIgnored
	return status
}

func setConditions(status *v1.ClusterPolicyStatus, f finding) {
	status.State = v1.StateNotReady
	isError := metav1.ConditionTrue
	if f.ready == metav1.ConditionTrue {
		status.State, isError = v1.StateReady, metav1.ConditionFalse
	}
	set := func(conditionType string, value metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: conditionType, Status: value, Reason: reason, Message: text.Truncate(message, conditions.MaxMessage),
			ObservedGeneration: status.ObservedGeneration,
		})
	}
	set(v1.ConditionReady, f.ready, f.reason, f.message)
	setFlag := func(conditionType string, is bool, reason, message string) {
		if is {
			set(conditionType, metav1.ConditionTrue, reason, message)
			return
		}
		set(conditionType, metav1.ConditionFalse, v1.ReasonNone, "")
	}
	if a := f.auxiliary; a != nil {
		set(v1.ConditionAuxiliaryReady, a.ready, a.reason, a.message)
	}
	progressing, degraded := f.forProgressing(), f.forDegraded()
	setFlag(v1.ConditionProgressing, progressing.progressing, progressing.reason, progressing.message)
	setFlag(v1.ConditionDegraded, degraded.degraded, degraded.reason, degraded.message)
	set(v1.ConditionError, isError, f.reason, f.message)
	if !f.stalled {
		meta.RemoveStatusCondition(&status.Conditions, v1.ConditionStalled)
		return
	}
	set(v1.ConditionStalled, metav1.ConditionTrue, f.reason, f.message)
}
