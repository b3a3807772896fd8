package node

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/kube/freshness"
	"github.com/clusterpolicy/gpu-operator/internal/kube/requeue"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/names/times"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/node/nodemarks"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

// scope is one reconcile of one node.
type scope struct {
	*Reconciler
	// node as it was read or, after a write, as the API server returned it.
	node *corev1.Node
	// basis is what the node is assessed by; nil before the first pass.
	basis *fleet.Basis
	// previous is the stored entry, nil if there is none; entry replaces it.
	previous *fleet.Entry
	entry    fleet.Entry
	// pods of the operator on the node; without Operands until they are read.
	pods observe.NodePods
	now  time.Time
	// requeueAfter is when to reconcile again; 0 means never.
	requeueAfter time.Duration
	// inBackoff: a write was skipped since an earlier one has just failed.
	inBackoff bool
}

// newScope reads the node, and returns nil if it does not exist.
func (r *Reconciler) newScope(ctx context.Context, name string) (*scope, error) {
	node := &corev1.Node{}
	err := r.Client.Get(ctx, client.ObjectKey{Name: name}, node, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading node %s: %w", name, err)
	}
	s := &scope{Reconciler: r, node: node, basis: r.Fleet.Basis(), previous: r.Fleet.Get(name), now: r.Clock.Now()}
	if s.previous != nil {
		s.entry = *s.previous
	}
	s.entry.Facts = s.facts()
	return s, nil
}

// facts returns the facts of the Node, from the kept plan if the Node is the same version.
func (s *scope) facts() nodeinfo.Facts {
	if kept := s.entry.Planned; kept != nil && kept.Inputs.Version == s.node.ResourceVersion {
		facts := kept.NodePlan.Facts
		facts.SelectorLabelGraceOver, facts.MIGOverdue = false, false
		return facts
	}
	return observe.Facts(s.node)
}

// planInputs identifies what the node's plan and labels are computed from.
func (s *scope) planInputs() fleet.PlanInputs {
	return fleet.PlanInputs{
		Version:                s.node.ResourceVersion,
		Decisions:              s.basis.Decisions,
		SelectorLabelGraceOver: s.entry.Facts.SelectorLabelGraceOver,
		MIGOverdue:             s.entry.Facts.MIGOverdue,
	}
}

// nodePlan returns what the decisions mean for the node, and keeps it in the entry.
func (s *scope) nodePlan() *plan.NodePlan {
	if source := s.planInputs(); s.entry.Planned == nil || s.entry.Planned.Inputs != source {
		s.entry.Planned = s.Fleet.Planned(source, s.basis.Decisions.ForNode(s.entry.Facts))
	}
	return &s.entry.Planned.NodePlan
}

// isStale reports whether the cache does not show the last write to the node yet.
func (s *scope) isStale() bool {
	return freshness.Stale(s.node.ResourceVersion, s.entry.Writes.Version)
}

// reconcile manages, releases or ignores the node, by what has been decided.
func (s *scope) reconcile(ctx context.Context) error {
	switch {
	case s.basis == nil:
		return nil
	case s.basis.Removal != nil:
		return s.remove(ctx)
	case s.basis.Decisions == nil:
		s.clearAssessment()
		if s.basis.KeepNodes || !nodemarks.WasWritten(s.node) || !s.beginWrite() {
			return nil
		}
		return s.release(ctx, "")
	case !s.entry.Managed():
		s.clearAssessment()
		if isPartlyReleased(s.node) && s.beginWrite() {
			return s.release(ctx, labels.False)
		}
		return s.recordDiscovery(ctx)
	}
	return s.manage(ctx)
}

// finish stores the entry, also after an error, and returns the result of the reconcile.
func (s *scope) finish(err error) (reconcile.Result, error) {
	switch {
	case apierrors.IsNotFound(err):
		// It was deleted meanwhile; its event follows.
		err = nil
	case apierrors.IsConflict(err):
		// It has changed since it was read. There may be no event, if the change is trimmed from the cache. The write is not
		// retried immediately, since several clients write to a node that joins.
		s.entry.Writes.RetryAt = s.now.Add(s.Timing.RetryStale)
		s.requeueAfter, err = requeue.MinDelay(s.requeueAfter, s.Timing.RetryStale), nil
	case err == nil && !s.inBackoff:
		s.entry.WriteError, s.entry.Writes.Backoff = "", 0
	case err != nil:
		s.entry.WriteError = err.Error()
		s.entry.Writes.Backoff = min(max(2*s.entry.Writes.Backoff, s.Timing.FirstRetry), s.Timing.LastRetry)
		s.entry.Writes.RetryAt = s.now.Add(s.entry.Writes.Backoff)
	}
	s.entry.Resting = s.resting()
	// A copy, so that the entry does not keep its scope, and with it the previous entry, in memory.
	entry := s.entry
	s.Fleet.Set(&entry)
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: s.requeueAfter}, nil
}

// requeueWithin makes the next reconcile due after this delay at the latest.
func (s *scope) requeueWithin(wait time.Duration) {
	s.requeueAfter = requeue.MinDelay(s.requeueAfter, wait)
}

// clearAssessment drops the assessment of a node that is not assessed any more. The back-off stays, as releasing the
// node may fail, too.
func (s *scope) clearAssessment() {
	writes := &s.entry.Writes
	s.entry = fleet.Entry{
		Facts: s.entry.Facts, BasisVersion: s.basis.Version, WriteError: s.entry.WriteError,
		Writes: fleet.Writes{Version: writes.Version, RetryAt: writes.RetryAt, Backoff: writes.Backoff},
	}
}

// recordDiscovery enters the state of node discovery on a node that discovery has not labelled yet.
func (s *scope) recordDiscovery(ctx context.Context) error {
	if s.entry.Facts.HasDiscoveryLabels {
		return nil
	}
	pods, err := observe.PodsOnNode(ctx, s.Client, s.Namespace, s.node.Name)
	if err != nil {
		return err
	}
	s.entry.Discovering = assess.DiscoveryOperands(s.Catalogue, pods.Operands, s.now)
	return nil
}

// manage reconciles a GPU node.
func (s *scope) manage(ctx context.Context) error {
	s.entry.Removal = nil
	decisions := s.basis.Decisions
	found := s.checkDiscovery(ctx, decisions.Input.Spec, decisions.DescribeMissingLabels(s.entry.Facts) != "")
	s.logKept(ctx, found)
	if found.release && s.beginWrite() {
		log.FromContext(ctx).Info("Removing the operands of a node whose discovery labels show no GPU",
			"since", s.node.Annotations[labels.DiscoveryLostSince])
		return s.release(ctx, labels.False)
	}
	s.requeueWithin(found.recheckAfter)
	var err error
	if s.pods, err = observe.PodsOnNode(ctx, s.Client, s.Namespace, s.node.Name); err != nil {
		return err
	}
	pods := s.pods.Operands
	s.entry.Facts.SelectorLabelGraceOver, s.entry.Facts.MIGOverdue = found.graceOver, s.entry.Latest.IsMIGOverdue()
	failure := s.label(ctx, found.annotations, pods)
	s.refreshTenants(ctx, false)
	s.refreshMIGCause(ctx, pods)
	s.assessAndClean(ctx, pods)
	s.recordNotes(ctx)
	if failure != nil {
		return failure
	}
	if err := s.replaceStaleProvers(ctx, pods); err != nil {
		return err
	}
	if err := s.replaceReaders(ctx, pods); err != nil {
		return err
	}
	if err := s.updateTaints(ctx, *decisions.Input.Spec.NodeStartup); err != nil {
		return err
	}
	if err := s.writeCondition(ctx); err != nil {
		return err
	}
	return s.writeHealth(ctx)
}

// beginWrite reports whether the Node may be written now. After a write that has failed, it postpones this one until
// the back-off is over.
func (s *scope) beginWrite() bool {
	if s.basis.Paused() {
		// The end of the pause publishes another Basis.
		return false
	}
	if left := s.entry.Writes.RetryAt.Sub(s.now); left > 0 {
		s.inBackoff = true
		s.requeueWithin(left)
		return false
	}
	return true
}

// label writes the node's labels and annotations, and updates the facts accordingly. notes are changes of annotations
// that are due already.
func (s *scope) label(ctx context.Context, notes map[string]*string, pods assess.Pods) error {
	if !s.beginWrite() {
		return nil
	}
	read, now := s.node, fleet.LabelInputs{PlanInputs: s.planInputs(), ReadyPods: s.readyPods(pods)}
	if s.awaitsUnused() {
		s.refreshTenants(ctx, true)
		now.ReadyPods.Unused = s.isUnused()
	}
	if len(notes) == 0 && s.entry.Writes.LabelInputs == now {
		return nil
	}
	changes := s.basis.Decisions.NodeLabels(s.entry.Facts, s.node.Labels, now.ReadyPods)
	s.markUpgrades(now.ReadyPods, changes, notes)
	s.recordPluginConfig(notes)
	nodemarks.Metadata{Labels: changes, Annotations: notes}.RecordMIGLayout()
	if len(changes) == 0 && len(notes) == 0 {
		s.entry.Writes.LabelInputs = now
	}
	err := s.patchMetadata(ctx, changes, notes)
	if s.node != read {
		before := s.entry.Facts
		s.entry.Facts = observe.Facts(s.node)
		s.entry.Facts.SelectorLabelGraceOver, s.entry.Facts.MIGOverdue = before.SelectorLabelGraceOver, before.MIGOverdue
	}
	return err
}

// readyPods reports which of the driver and the injector have a ready pod.
func (s *scope) readyPods(pods assess.Pods) plan.ReadyPods {
	driver := s.readyDriver(pods)
	injector := s.readyPod(pods, func(o *operand.Operand) bool { return o.IsInjector })
	return plan.ReadyPods{
		Driver: driver != nil, CurrentDriver: driver != nil && s.basis.Stack.IsCurrent(driver), Injector: injector != nil,
	}
}

// readyDriver returns the ready driver pod of the node, nil if there is none.
func (s *scope) readyDriver(pods assess.Pods) *corev1.Pod {
	return s.readyPod(pods, func(o *operand.Operand) bool { return o.UpdatesOnDelete })
}

// readyPod returns the ready pod of the first such operand that has one, nil if none has.
func (s *scope) readyPod(pods assess.Pods, of func(*operand.Operand) bool) *corev1.Pod {
	for i := range s.Catalogue {
		o := &s.Catalogue[i]
		if pod := pods[o.Name]; pod != nil && of(o) && readiness.Pod(pod, "", s.now).State == readiness.Ready {
			return pod
		}
	}
	return nil
}

// assessAndClean assesses the node, after its labels were written. If it has read which pods the kubelet refused, some
// of which it may delete, it assesses the node again.
func (s *scope) assessAndClean(ctx context.Context, pods assess.Pods) {
	planned := s.nodePlan()
	s.entry.Discovering = nil
	s.entry.NodePool, s.entry.DriverPool = planned.NodePool, cmp.Or(s.entry.Facts.Pool, planned.Pool.Name)
	s.noticeBoot()
	in, recheck := s.assessInput(pods)
	s.requeueWithin(recheck)
	s.entry.Latest = assess.Node(in)
	if s.handleRefusedPods(ctx) {
		in.RefusedPods = s.entry.Boot.Refused
		s.entry.Latest = assess.Node(in)
	}
	s.enterReport()
	s.recordJoin()
	s.entry.BasisVersion = s.basis.Version
}

// assessInput returns what the node is assessed by, and after how long that changes without an event; 0 for never.
func (s *scope) assessInput(pods assess.Pods) (in assess.Input, recheck time.Duration) {
	neighbours, known := s.Fleet.Neighbours(s.node.Name)
	in = assess.Input{
		NodePlan: *s.nodePlan(), Node: s.node, Pods: pods, Stack: s.basis.Stack, Previous: s.previousReadySince(), Now: s.now,
		Tenants:      s.entry.Writes.Tenants.Pods,
		MIGCause:     s.entry.Writes.MIGCause.Words,
		RefusedPods:  s.entry.Boot.Refused,
		Neighbours:   neighbours,
		ForeignSince: s.entry.Latest.ForeignSince,

		MIGCauseSought: s.entry.Writes.MIGCause.Sought(),
	}
	in.HeldConfig, recheck = s.heldConfig()
	in.HeldFails = in.HeldConfig != "" && s.fails(s.readers(pods))
	if !known {
		in.Neighbours = assess.RecordOf(s.node).Neighbours
	}
	return in, recheck
}

// enterReport enters what is reported of the assessment, and schedules the next one.
func (s *scope) enterReport() {
	var wait time.Duration
	s.entry.Report, wait = s.entry.Report.Next(s.entry.Latest, s.Timing.Dwell)
	s.requeueWithin(wait)
	if until := s.entry.Latest.Until; !until.IsZero() {
		s.requeueWithin(max(until.Sub(s.now), time.Millisecond))
	}
	if s.entry.Latest.IsMIGOverdue() && !s.entry.Facts.MIGOverdue {
		// The labels of this reconcile are already written.
		s.requeueWithin(time.Millisecond)
	}
}

// previousReadySince returns the node's state before this assessment. After a restart it is read from the condition,
// whose time may delay what follows, never hasten it.
func (s *scope) previousReadySince() assess.ReadySince {
	if s.entry.Latest.At.IsZero() {
		condition := assess.GPUReadyCondition(s.node)
		if condition == nil || condition.LastTransitionTime.After(s.now) {
			return assess.ReadySince{}
		}
		return assess.ReadySinceOf(condition)
	}
	return s.entry.Latest.ReadySince()
}

// maxDiscoveryTime is the longest time between the creation of a node and its discovery that counts as joining. A node
// that was discovered later got its GPUs, or its policy, late: its join starts now.
const maxDiscoveryTime = 10 * time.Minute

// recordJoin counts the stages that a joining node has reached. Nodes that joined before the operator started are not
// counted.
func (s *scope) recordJoin() {
	writes := &s.entry.Writes
	isNew := s.previous == nil || s.previous.Latest.At.IsZero()
	if writes.Joined.IsZero() && isNew && assess.GPUReadyCondition(s.node) == nil {
		writes.Joined = times.Later(s.node.CreationTimestamp.Time, s.basis.Policy.CreationTimestamp.Time)
		if s.now.Sub(writes.Joined) > maxDiscoveryTime {
			writes.Joined = s.now
		}
	}
	if writes.Joined.IsZero() {
		return
	}
	stages, reached := v1.Stages(), s.entry.Latest.Stage.Index()
	if s.entry.Latest.Ready() {
		reached = len(stages)
	}
	for ; writes.Reached < reached; writes.Reached++ {
		s.Meter.ObserveJoin(stages[writes.Reached], s.now.Sub(writes.Joined))
	}
	if s.entry.Latest.Ready() {
		writes.Joined, writes.Reached = time.Time{}, 0
	}
}

// isPartlyReleased reports whether a node that is not managed still has the operator's condition or taints: releasing
// it failed after its labels were removed.
func isPartlyReleased(node *corev1.Node) bool {
	_, isTainted := node.Annotations[labels.StartupTaints]
	return isTainted || len(nodemarks.Conditions(node)) > 0
}
