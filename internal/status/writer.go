package status

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/events"
	"github.com/clusterpolicy/gpu-operator/internal/freshness"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/readiness"
)

const (
	// minInterval is the least time between two writes of one policy's status.
	minInterval = time.Second
	// counterInterval is how often mere changes of counters are written.
	counterInterval = 10 * time.Second
)

// Writer is the only writer of ClusterPolicy.status. What it remembers are times and versions, which
// delay a write and never cause one; losing them costs one early write.
type Writer struct {
	client client.Client
	clock  clock.PassiveClock
	events *events.Recorder
	// beside are the operands that no stage of a node waits for.
	beside sets.Set[string]
	seen   *freshness.Tracker
	mu     sync.Mutex
	last   map[types.UID]time.Time
}

// NewWriter returns a Writer, which tells of transitions by the Recorder: of the policy, and of those operands of
// the catalogue that no stage of a node waits for.
func NewWriter(c client.Client, clk clock.PassiveClock, recorder *events.Recorder, catalogue []operand.Operand) *Writer {
	beside := sets.New[string]()
	for i := range catalogue {
		if catalogue[i].Stage == "" {
			beside.Insert(string(catalogue[i].Name))
		}
	}
	return &Writer{client: c, clock: clk, events: recorder, beside: beside, seen: freshness.NewTracker(), last: map[types.UID]time.Time{}}
}

// Write brings the status of the policy, as the cache has it, to the one given. It returns after how
// long to come back where the write has to wait, or zero.
func (w *Writer) Write(ctx context.Context, policy *v1.ClusterPolicy, status v1.ClusterPolicyStatus) (time.Duration, error) {
	if w.seen.Stale(string(policy.UID), policy.ResourceVersion) {
		// The cache does not show our last write yet; what it shows is no ground to write again.
		return minInterval, nil
	}
	if equality.Semantic.DeepEqual(policy.Status, status) {
		return 0, nil
	}
	if wait := w.wait(policy, status); wait > 0 {
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
	if err := w.client.Status().Update(ctx, update); err != nil {
		return 0, fmt.Errorf("writing status of ClusterPolicy %s: %w", policy.Name, err)
	}
	w.seen.Wrote(string(policy.UID), update.ResourceVersion)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last[policy.UID] = w.clock.Now()
	return 0, nil
}

func (w *Writer) wait(policy *v1.ClusterPolicy, status v1.ClusterPolicyStatus) time.Duration {
	interval := counterInterval
	if Significant(policy.Status, status) {
		interval = minInterval
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return interval - w.clock.Since(w.last[policy.UID])
}

// Significant tells whether the verdict or a cause differs between two statuses, rather than only
// counters and how far nodes on their way have come.
func Significant(before, after v1.ClusterPolicyStatus) bool {
	return before.State != after.State ||
		before.ObservedGeneration != after.ObservedGeneration ||
		!causes(before).Equal(causes(after))
}

// causes are the verdicts and failures of a status, as comparable texts.
func causes(status v1.ClusterPolicyStatus) sets.Set[string] {
	found := sets.New[string]()
	for _, c := range status.Conditions {
		found.Insert(fmt.Sprintf("condition %s %s %s", c.Type, c.Status, c.Reason))
	}
	for _, o := range status.Operands {
		// Whether all of its nodes are there yet is counted, like the nodes.
		if o.State != v1.OperandReady && o.State != v1.OperandProgressing {
			found.Insert(fmt.Sprintf("operand %s %s", o.Name, o.State))
		}
	}
	for _, n := range status.Nodes {
		if !n.Ready && (!onItsWay.Has(n.Reason) || readiness.IsOverdue(n.Message)) {
			found.Insert(fmt.Sprintf("node %s %s %s %s", n.Name, n.Stage, n.Operand, n.Reason))
		}
	}
	return found
}

// onItsWay are the reasons of nodes that only need time.
var onItsWay = sets.New(v1.ReasonStarting, v1.ReasonWaitingForOperand, v1.ReasonPodMissing, v1.ReasonPodPending,
	v1.ReasonNotAllocatable, v1.ReasonNodeNotReady, v1.ReasonUntoleratedTaint, v1.ReasonDiscoveryLabelsMissing, v1.ReasonStartupTaint)
