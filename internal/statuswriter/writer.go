package statuswriter

import (
	"cmp"
	"context"
	"fmt"
	"slices"
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
	"github.com/clusterpolicy/gpu-operator/internal/apply"
	"github.com/clusterpolicy/gpu-operator/internal/assess"
	"github.com/clusterpolicy/gpu-operator/internal/events"
	"github.com/clusterpolicy/gpu-operator/internal/freshness"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// Timing are the waits of a Writer; tests shorten them.
type Timing struct {
	// Interval is the least time between two writes of one policy's status, and CounterInterval that before a write of
	// counters alone.
	Interval, CounterInterval time.Duration
}

// DefaultTiming returns the waits of production.
func DefaultTiming() Timing {
	return Timing{Interval: time.Second, CounterInterval: 10 * time.Second}
}

// Writer is the only writer of ClusterPolicy.status. What it remembers are times and versions, which
// delay a write and never cause one; losing them costs one early write.
type Writer struct {
	client client.Client
	clock  clock.PassiveClock
	events *events.Recorder
	timing Timing
	// beside are the operands that no stage of a node waits for.
	beside sets.Set[string]
	mu     sync.Mutex
	last   map[types.UID]written
}

// written is the last write of a policy's status.
type written struct {
	version string
	at      time.Time
	// conflict is the version of the policy from which a write since then was refused for a conflict.
	conflict string
}

// lastAtMost bounds what is kept of policies, most of which are gone where there are more.
const lastAtMost = 16

// New returns a Writer, which reports transitions by the Recorder: of the policy, and of those operands of
// the catalogue that no stage of a node waits for.
func New(
	c client.Client, clk clock.PassiveClock, recorder *events.Recorder, catalogue operand.Catalogue, timing Timing,
) *Writer {
	beside := sets.New[string]()
	for i := range catalogue {
		if catalogue[i].Stage == "" {
			beside.Insert(string(catalogue[i].Name))
		}
	}
	return &Writer{client: c, clock: clk, events: recorder, timing: timing, beside: beside, last: map[types.UID]written{}}
}

// Write updates the status of the policy, as the cache has it, to the one given. It returns after how long to come back
// where the write has to wait or has met a conflict, or zero. A second conflict with the same version of the policy is
// an error.
func (w *Writer) Write(
	ctx context.Context, policy *v1.ClusterPolicy, status v1.ClusterPolicyStatus,
) (time.Duration, error) {
	orderConditions(status.Conditions)
	last := w.lastOf(policy.UID)
	if freshness.Stale(policy.ResourceVersion, last.version) {
		// The cache does not show our last write yet; what it shows is no ground to write again.
		return w.timing.Interval, nil
	}
	if equality.Semantic.DeepEqual(policy.Status, status) {
		return 0, nil
	}
	if wait := w.wait(last, policy, status); wait > 0 {
		return wait, nil
	}
	event, tells := policyEvent(policy, status)
	if tells {
		w.events.Record(ctx, event)
	}
	for _, event := range operandEvents(policy, status, w.beside, event.Message) {
		w.events.Record(ctx, event)
	}
	update := policy.DeepCopy()
	update.Status = status
	err := w.client.Status().Update(ctx, update)
	if apierrors.IsConflict(err) && w.isFirstConflict(policy) {
		// The policy has changed meanwhile; the cache will show it in a moment.
		return w.timing.Interval, nil
	}
	if err != nil {
		return 0, fmt.Errorf("writing status of ClusterPolicy %s: %w", policy.Name, err)
	}
	w.wrote(policy.UID, update.ResourceVersion)
	return 0, nil
}

// Repaired records an Event about drift that the pass has set right: a condition would be over as it is written.
func (w *Writer) Repaired(ctx context.Context, policy *v1.ClusterPolicy, repair *apply.Repair) {
	w.events.Record(ctx, events.Event{
		Regarding: policyReference(policy), Type: corev1.EventTypeWarning,
		Reason: v1.ReasonPlacementRepaired, Message: repair.String(),
		Transition: repair.Object + " of version " + repair.Version,
	})
}

func (w *Writer) lastOf(policy types.UID) written {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last[policy]
}

func (w *Writer) wrote(policy types.UID, version string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.remember(policy, written{version: version, at: w.clock.Now()})
}

// isFirstConflict reports whether no write from this version of the policy has met a conflict before, and notes this
// one. Another one from the same version is no news that the cache will show: it is an error like others, and backs
// off.
func (w *Writer) isFirstConflict(policy *v1.ClusterPolicy) bool {
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
	if len(w.last) >= lastAtMost {
		clear(w.last)
	}
	w.last[policy] = last
}

func (w *Writer) wait(last written, policy *v1.ClusterPolicy, status v1.ClusterPolicyStatus) time.Duration {
	interval := w.timing.CounterInterval
	if Significant(policy.Status, status) {
		interval = w.timing.Interval
	}
	return interval - w.clock.Since(last.at)
}

// Significant reports whether the verdict or a cause differs between two statuses, rather than only
// counters and how far nodes on their way have come.
func Significant(before, after v1.ClusterPolicyStatus) bool {
	return before.State != after.State ||
		before.ObservedGeneration != after.ObservedGeneration ||
		!causes(before).Equal(causes(after))
}

// causes are the verdicts and failures of a status, as comparable texts.
func causes(status v1.ClusterPolicyStatus) sets.Set[string] {
	found := sets.New[string]()
	if s := status.NodeSummary; s != nil {
		// It counts what is overdue, too, which has the reason that it had before.
		found.Insert(fmt.Sprintf("degraded %d", s.Degraded))
	}
	for _, c := range status.Conditions {
		found.Insert(fmt.Sprintf("condition %s %s %s", c.Type, c.Status, c.Reason))
	}
	for i := range status.Operands {
		// Whether all of its nodes are there yet is counted, like the nodes.
		if o := &status.Operands[i]; o.State != v1.OperandReady && o.State != v1.OperandProgressing {
			found.Insert(fmt.Sprintf("operand %s %s %s", o.Name, o.State, request(o.Reason, o.Message)))
		}
	}
	for i := range status.NodePools {
		if p := &status.NodePools[i]; p.Reason == v1.ReasonReferenceMissing {
			found.Insert(fmt.Sprintf("pool %s %s", p.Name, request(p.Reason, p.Message)))
		}
	}
	for i := range status.Nodes {
		if n := &status.Nodes[i]; !n.Ready && !assess.IsTransient(n.Reason) {
			found.Insert(fmt.Sprintf("node %s %s %s %s", n.Name, n.Stage, n.Operand, request(n.Reason, n.Message)))
		}
	}
	return found
}

// request is a reason, with its message where that asks somebody for an object: once that is there, it is not true any
// more. Other messages count, or have the words of one attempt of a container.
func request(reason, message string) string {
	if reason == v1.ReasonReferenceMissing {
		return reason + ": " + message
	}
	return reason
}

// conditionTypes are the conditions of a policy in the order in which its status has them.
func conditionTypes() []string {
	return []string{
		v1.ConditionReady, v1.ConditionAuxiliaryReady, v1.ConditionProgressing, v1.ConditionDegraded, v1.ConditionError,
		v1.ConditionUnsupportedFields, v1.ConditionDeprecatedFields, v1.ConditionCRDOutdated,
	}
}

// orderConditions puts conditions into the order of conditionTypes, so that it does not depend on which was first set.
// Conditions of others come first.
func orderConditions(conditions []metav1.Condition) {
	order := conditionTypes()
	slices.SortStableFunc(conditions, func(a, b metav1.Condition) int {
		return cmp.Compare(slices.Index(order, a.Type), slices.Index(order, b.Type))
	})
}
