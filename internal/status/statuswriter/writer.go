package statuswriter

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/kube/drift"
	"github.com/clusterpolicy/gpu-operator/internal/kube/events"
	"github.com/clusterpolicy/gpu-operator/internal/kube/freshness"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// Timing has the cooldowns of a Writer; tests shorten them.
type Timing struct {
	// Interval is the minimum time between two writes of the status of a policy. A policy that becomes ready is written at
	// once: before it can become ready again, another write must say that it is not.
	Interval time.Duration
	// CounterInterval is the longest minimum time before a write that changes only counters. CounterPerNode is how much
	// each node of the fleet adds to it, from Interval on: a small fleet has few writes, and its reader compares the
	// counters with the nodes.
	CounterInterval, CounterPerNode time.Duration
	// RetryStale is the delay while the cache does not contain the last write, which causes no pass.
	RetryStale time.Duration
}

// DefaultTiming returns the production values.
func DefaultTiming() Timing {
	return Timing{
		Interval: time.Second, CounterInterval: 10 * time.Second, CounterPerNode: 100 * time.Millisecond,
		RetryStale: 200 * time.Millisecond,
	}
}

// beforeCounters returns the minimum time before a write that changes only counters of this many nodes.
func (t Timing) beforeCounters(nodes int32) time.Duration {
	return min(max(time.Duration(nodes)*t.CounterPerNode, t.Interval), t.CounterInterval)
}

// Writer is the only writer of ClusterPolicy.status. It keeps times and versions in memory, which only delay writes: a
// restart costs one early write.
type Writer struct {
	client client.Client
	clock  clock.PassiveClock
	events *events.Recorder
	timing Timing
	// withoutStage are the auxiliary operands, and those that do not run on GPU nodes: no node reports them.
	withoutStage sets.Set[string]
	own          *ownStatuses
	mu           sync.Mutex
	last         map[types.UID]written
}

// written is the last write of a policy's status.
type written struct {
	version string
	at      time.Time
	// ready: it reported the state ready.
	ready bool
	// conflict is the version of the policy from which a later write met a conflict.
	conflict string
}

// maxRemembered bounds the policies in memory. If there are more, most of them have been deleted.
const maxRemembered = 16

// New returns a Writer, which records transitions of the policy, and of the operands in the catalogue that no stage
// depends on.
func New(
	c client.Client, clk clock.PassiveClock, recorder *events.Recorder, catalogue operand.Catalogue, timing Timing,
) *Writer {
	withoutStage := sets.New[string]()
	for i := range catalogue {
		if catalogue[i].Stage == "" {
			withoutStage.Insert(string(catalogue[i].Name))
		}
	}
	return &Writer{
		client: c, clock: clk, events: recorder, timing: timing, withoutStage: withoutStage,
		own: newOwnStatuses(maxRemembered), last: map[types.UID]written{},
	}
}

// Wrote reports whether the policy has the status that this Writer wrote last. Any other one is that of another client.
func (w *Writer) Wrote(policy *v1.ClusterPolicy) bool { return w.own.has(policy.UID, policy.Status) }

// Write updates the status of the policy, which is a copy from the cache. It returns after how long to call it again
// if the write must wait or met a conflict, or zero. A second conflict from the same version of the policy is an error.
func (w *Writer) Write(
	ctx context.Context, policy *v1.ClusterPolicy, status v1.ClusterPolicyStatus,
) (time.Duration, error) {
	orderConditions(status.Conditions)
	last := w.lastOf(policy.UID)
	if freshness.Stale(policy.ResourceVersion, last.version) {
		return w.timing.RetryStale, nil
	}
	if equality.Semantic.DeepEqual(policy.Status, status) {
		return 0, nil
	}
	if wait := w.wait(last, policy, status); wait > 0 {
		return wait, nil
	}
	event, changed := policyEvent(policy, status)
	if changed {
		w.events.Record(ctx, event)
	}
	if outdated, appeared := outdatedEvent(policy, status); appeared {
		w.events.Record(ctx, outdated)
	}
	for _, event := range operandEvents(policy, status, w.withoutStage, event.Message) {
		w.events.Record(ctx, event)
	}
	update := policy.DeepCopy()
	update.Status = status
	w.own.add(policy.UID, status)
	err := w.client.Status().Update(ctx, update)
	if apierrors.IsConflict(err) && w.noteConflict(policy) {
		// The policy has changed meanwhile, which the cache will soon contain.
		return w.timing.Interval, nil
	}
	if err != nil {
		return 0, fmt.Errorf("writing status of ClusterPolicy %s: %w", policy.Name, err)
	}
	w.noteWritten(policy.UID, written{version: update.ResourceVersion, ready: status.State == v1.StateReady})
	return 0, nil
}

// RecordRepair records an Event about drift that the pass has repaired. A condition would no longer be true when it is
// written. A controller that repeats its edit gets no further Event for the same field, unless the edit may have
// removed pods.
func (w *Writer) RecordRepair(ctx context.Context, policy *v1.ClusterPolicy, repair *drift.Repair) {
	reason := v1.ReasonEditReverted
	transition := fmt.Sprintf("%s of %s by %s", repair.Field, repair.Object, repair.Manager)
	if repair.Placement {
		reason, transition = v1.ReasonPlacementRepaired, repair.Object+" of version "+repair.Version
	}
	w.events.Record(ctx, events.Event{
		Regarding: policyReference(policy), Type: corev1.EventTypeWarning,
		Reason: reason, Message: repair.String(), Transition: transition,
	})
}

func (w *Writer) lastOf(policy types.UID) written {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last[policy]
}

func (w *Writer) noteWritten(policy types.UID, last written) {
	w.mu.Lock()
	defer w.mu.Unlock()
	last.at = w.clock.Now()
	w.remember(policy, last)
}

// noteConflict reports whether this is the first conflict of a write from this version of the policy, and remembers
// it. After a second one, waiting for the cache is of no use: it is an error, and the controller backs off.
func (w *Writer) noteConflict(policy *v1.ClusterPolicy) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := w.last[policy.UID]
	if last.conflict == policy.ResourceVersion {
		return false
	}
	last.conflict = policy.ResourceVersion
	w.remember(policy.UID, last)
	return true
}

func (w *Writer) remember(policy types.UID, last written) {
	if len(w.last) >= maxRemembered {
		clear(w.last)
	}
	w.last[policy] = last
}

func (w *Writer) wait(last written, policy *v1.ClusterPolicy, status v1.ClusterPolicyStatus) time.Duration {
	// If another client has replaced the state that was written last, it may do so again and again.
	if status.State == v1.StateReady && policy.Status.State != v1.StateReady && !last.ready {
		return 0
	}
	interval := w.timing.Interval
	if !significant(policy.Status, status) {
		interval = w.timing.beforeCounters(total(status))
	}
	return interval - w.clock.Since(last.at)
}

// total returns the number of GPU nodes in a status.
func total(status v1.ClusterPolicyStatus) int32 {
	if status.NodeSummary == nil {
		return 0
	}
	return status.NodeSummary.Total
}

// significant reports whether two statuses differ in more than counters and the progress of nodes and operands.
func significant(before, after v1.ClusterPolicyStatus) bool {
	return before.State != after.State ||
		before.ObservedGeneration != after.ObservedGeneration ||
		!causes(before).Equal(causes(after))
}

// causes returns the significant parts of a status as comparable strings.
func causes(status v1.ClusterPolicyStatus) sets.Set[string] {
	found := sets.New[string]()
	if s := status.NodeSummary; s != nil {
		// A node that exceeds a deadline becomes degraded without another reason.
		found.Insert(fmt.Sprintf("degraded %d", s.Degraded))
	}
	if u := status.Upgrade; u != nil {
		// The node and the reason come before the message: a cause that has gone must not stay in the status.
		first, _, _ := strings.Cut(u.Message, ":")
		found.Insert("upgrade " + first)
	}
	for _, c := range status.Conditions {
		found.Insert(fmt.Sprintf("condition %s %s %s", c.Type, c.Status, c.Reason))
	}
	for i := range status.Operands {
		// Ready and Progressing only differ in the number of ready nodes.
		if o := &status.Operands[i]; o.State != v1.OperandReady && o.State != v1.OperandProgressing {
			found.Insert(fmt.Sprintf("operand %s %s %s", o.Name, o.State, cause(o.Reason, o.Message)))
		}
	}
	for i := range status.NodePools {
		if nodePool := &status.NodePools[i]; nodePool.Reason == v1.ReasonReferenceMissing {
			found.Insert(fmt.Sprintf("pool %s %s", nodePool.Name, nodePool.Message))
		}
	}
	for i := range status.Nodes {
		if n := &status.Nodes[i]; !n.Ready && !assess.IsTransient(n.Reason) {
			found.Insert(fmt.Sprintf("node %s %s %s %s", n.Name, n.Stage, n.Operand, cause(n.Reason, n.Message)))
		}
	}
	return found
}

// cause returns the reason, with the message if that names a missing object: another missing object is another cause.
// Other messages contain counters or the output of a container, which change while the cause is the same.
func cause(reason, message string) string {
	if reason == v1.ReasonReferenceMissing {
		return reason + ": " + message
	}
	return reason
}

// conditionTypes returns the conditions of a policy in the order of the status.
func conditionTypes() []string {
	return []string{
		v1.ConditionReady, v1.ConditionAuxiliaryReady, v1.ConditionProgressing, v1.ConditionDegraded, v1.ConditionError,
		v1.ConditionStalled,
		v1.ConditionUnsupportedFields, v1.ConditionDeprecatedFields, v1.ConditionCRDOutdated,
		v1.ConditionAdmissionPolicyMissing, v1.ConditionOtherOperatorRunning, v1.ConditionOutdatedComponent,
	}
}

// orderConditions sorts the conditions in the order of conditionTypes, so that it does not depend on which was set
// first. Conditions of other writers come first.
func orderConditions(conditions []metav1.Condition) {
	order := conditionTypes()
	slices.SortStableFunc(conditions, func(a, b metav1.Condition) int {
		return cmp.Compare(slices.Index(order, a.Type), slices.Index(order, b.Type))
	})
}
