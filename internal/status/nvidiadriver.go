package status

import (
	"cmp"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/text"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/stack/nvidiadriver"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/status/conditions"
)

// DriverInput is what the status of NVIDIADriver objects is computed from.
type DriverInput struct {
	// Namespace of the operator and the drivers.
	Namespace string
	// Decisions of the active policy; nil if there is none.
	Decisions *plan.Decisions
	// View has the nodes, assessed by the decisions.
	View fleet.View
	// Held says why no NVIDIADriver is applied at present; empty if they are.
	Held string
}

// driverFinding is the state of an NVIDIADriver object, with its cause.
type driverFinding struct {
	state           v1alpha1.DriverState
	reason, message string
	// stalled is as in finding.
	stalled bool
}

// NVIDIADriver returns the status of an NVIDIADriver object after a pass.
func NVIDIADriver(object *v1alpha1.NVIDIADriver, in DriverInput) v1alpha1.NVIDIADriverStatus {
	status := *object.Status.DeepCopy()
	found := driverState(object, in)
	status.State, status.Namespace, status.ObservedGeneration = found.state, in.Namespace, object.Generation
	ready, failed := metav1.ConditionFalse, metav1.ConditionTrue
	if found.state == v1alpha1.StateReady {
		ready, failed = metav1.ConditionTrue, metav1.ConditionFalse
	}
	notes := strings.Join(nvidiadriver.Notes(*object), "; ")
	if found.message != "" && notes != "" {
		notes = "; " + notes
	}
	set := func(conditionType string, value metav1.ConditionStatus) {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: conditionType, Status: value, Reason: found.reason, ObservedGeneration: object.Generation,
			Message: text.Truncate(found.message+notes, conditions.MaxMessage),
		})
	}
	set(v1.ConditionReady, ready)
	set(v1.ConditionError, failed)
	if found.stalled {
		set(v1.ConditionStalled, metav1.ConditionTrue)
	} else {
		meta.RemoveStatusCondition(&status.Conditions, v1.ConditionStalled)
	}
	return status
}

func driverState(object *v1alpha1.NVIDIADriver, in DriverInput) driverFinding {
	if cause := cmp.Or(object.Annotations[labels.Undecodable], in.Held); cause != "" {
		return driverFinding{
			state: v1alpha1.StateNotReady, reason: v1.ReasonUndecodable, message: cause, stalled: true,
		}
	}
	if in.Decisions == nil || !in.Decisions.Input.UsesNVIDIADrivers() || !*in.Decisions.Input.Spec.Driver.Enabled {
		return driverFinding{state: v1alpha1.StateDisabled, reason: v1.ReasonReconciled, message: "no ClusterPolicy uses " +
			"NVIDIADrivers: set spec.driver.enabled and spec.driver.useNvidiaDriverCRD of the active one"}
	}
	if refused := in.Decisions.RefusedDriver(object.Name); refused.Choice == operand.Refused {
		return driverFinding{
			state: v1alpha1.StateNotReady, reason: refused.Reason, message: refused.Message,
			// What the object refers to may still be created, as by the same tool.
			stalled: refused.Reason != v1.ReasonReferenceMissing,
		}
	}
	if conflict := driverConflict(object.Name, in); conflict != "" {
		return driverFinding{
			state: v1alpha1.StateNotReady, reason: v1.ReasonConflictingNodeSelector, message: conflict, stalled: true,
		}
	}
	return driverProgress(object.Name, in)
}

// checkUndeclared reports drivers that run although NVIDIADriver objects do not declare them.
func checkUndeclared(_ Input, status v1.ClusterPolicyStatus) *finding {
	for i := range status.Operands {
		if o := &status.Operands[i]; o.State == v1.OperandWaiting && plan.IsUndeclared(o.Reason) {
			return &finding{
				reason: o.Reason, message: operandMessage(o), stalled: o.Reason == v1.ReasonConflictingNodeSelector,
			}
		}
	}
	return nil
}

// driverConflict describes the first node that the object and another one select; empty if there is none.
func driverConflict(object string, in DriverInput) string {
	drivers := in.Decisions.Input.NVIDIADrivers
	for _, entry := range in.View.Nodes {
		found := operand.NVIDIADriversOf(drivers, entry.Facts)
		if len(found) < 2 || entry.Facts.ExcludedByLabel {
			continue
		}
		for _, at := range found {
			if drivers[at].Name != object {
				continue
			}
			other := found[0]
			if other == at {
				other = found[1]
			}
			return fmt.Sprintf("NVIDIADrivers %s and %s select node %s: change one nodeSelector",
				drivers[min(at, other)].Name, drivers[max(at, other)].Name, entry.Facts.Name)
		}
	}
	return ""
}

// driverProgress counts the nodes of the object whose driver is ready and up to date.
func driverProgress(object string, in DriverInput) driverFinding {
	total, ready, worst, reason := 0, 0, "", ""
	for _, entry := range in.View.Nodes {
		if entry.Planned == nil || entry.Planned.NodePlan.DriverOwner != object {
			continue
		}
		shown := entry.StatusAssessment()
		if shown.Excluded {
			continue
		}
		total++
		switch {
		case driverIsReady(in.Decisions, &entry.Planned.NodePlan, shown):
			ready++
		case worst == "":
			worst = fmt.Sprintf("; %s: %s", entry.Facts.Name, shown.Text())
			reason = cmp.Or(shown.Reason, v1.ReasonOperandNotReady)
		}
	}
	switch {
	case total == 0:
		return driverFinding{state: v1alpha1.StateReady, reason: v1.ReasonNoGPUNodes, message: "no GPU node is selected"}
	case worst != "":
		return driverFinding{
			state: v1alpha1.StateNotReady, reason: reason,
			message: fmt.Sprintf("the driver is ready on %d of %d nodes%s", ready, total, worst),
		}
	}
	return driverFinding{
		state: v1alpha1.StateReady, reason: v1.ReasonReconciled,
		message: fmt.Sprintf("the driver is ready on %d of %d nodes", ready, total),
	}
}

// driverIsReady reports whether a node has reached a stage after the driver's, and its driver is not outdated.
func driverIsReady(decisions *plan.Decisions, node *plan.NodePlan, shown *assess.Assessment) bool {
	driver, _ := decisions.Driver(node)
	// By the operand's own verdict: that of the node may be about another fault.
	outdated := node.Moves() || shown.Operands[driver.Operand].Outdated
	return !outdated && (shown.State == readiness.Ready || v1.StageDriver.Before(shown.Stage))
}
