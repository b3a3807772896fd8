package node

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/assess"
	"github.com/clusterpolicy/gpu-operator/internal/controller/requeue"
	"github.com/clusterpolicy/gpu-operator/internal/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/freshness"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/observe"
	"github.com/clusterpolicy/gpu-operator/internal/plan"
	"github.com/clusterpolicy/gpu-operator/internal/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/times"
)

// scope is one reconcile of one node.
type scope struct {
	*Reconciler
	// node as it was read, and after each write as that has left it.
	node *corev1.Node
	// basis is what the node is assessed by; nil before the first pass.
	basis *fleet.Basis
	// before is the entry that the node has, nil for none, and entry the one that it gets.
	before *fleet.Entry
	entry  fleet.Entry
	now    time.Time
	// wait is after how long to come back; 0 is never.
	wait time.Duration
	// held: a write was left out, as the one before has failed a moment ago.
	held bool
}

// newScope reads the node. It returns nil where the node is gone, which has been forgotten then.
func (r *Reconciler) newScope(ctx context.Context, name string) (*scope, error) {
	node := &corev1.Node{}
	err := r.Client.Get(ctx, client.ObjectKey{Name: name}, node, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		r.Fleet.Delete(name)
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading node %s: %w", name, err)
	}
	s := &scope{Reconciler: r, node: node, basis: r.Fleet.Basis(), before: r.Fleet.Get(name), now: r.Clock.Now()}
	if s.before != nil {
		s.entry = *s.before
	}
	s.entry.Facts = s.facts()
	return s, nil
}

// facts are those of the node. They are read anew once the Node is another one.
func (s *scope) facts() nodeinfo.Facts {
	if kept := s.entry.Planned; kept != nil && kept.From.Version == s.node.ResourceVersion {
		facts := kept.Node.Facts
		facts.StayedAway = false
		return facts
	}
	return observe.Facts(s.node)
}

// source is what the plan for the node follows from, and its labels.
func (s *scope) source() fleet.Source {
	return fleet.Source{Version: s.node.ResourceVersion, Decisions: s.basis.Decisions, SelectorLabelExpired: s.entry.Facts.StayedAway}
}

// plan is what the decisions say about the node.
func (s *scope) plan() *plan.Node {
	if source := s.source(); s.entry.Planned == nil || s.entry.Planned.From != source {
		s.entry.Planned = s.Fleet.Planned(source, s.basis.Decisions.ForNode(s.entry.Facts))
	}
	return &s.entry.Planned.Node
}

// isStale reports whether the cache does not show the last write to the node yet. Once it does, the write is forgotten.
func (s *scope) isStale() bool {
	if freshness.Stale(s.node.ResourceVersion, s.entry.Writes.Version) {
		return true
	}
	s.entry.Writes.Version = ""
	return false
}

// reconcile decides what the operator does with the node.
func (s *scope) reconcile(ctx context.Context) error {
	switch {
	case s.basis == nil:
		return nil
	case s.basis.Decisions == nil:
		s.unassessed()
		if s.basis.KeepNodes || !marked(s.node) || !s.writes() {
			return nil
		}
		return s.release(ctx, "")
	case !s.entry.Managed():
		s.unassessed()
		if isLeft(s.node) && s.writes() {
			return s.release(ctx, labels.False)
		}
		return s.discovering(ctx)
	}
	return s.manage(ctx)
}

// close enters what was found, whatever failed, and returns when to come back.
func (s *scope) close(err error) (reconcile.Result, error) {
	switch {
	case apierrors.IsNotFound(err):
		// It was deleted meanwhile, and its event is on the way.
		err = nil
	case apierrors.IsConflict(err):
		// It has changed since it was read. The event may not come: a change that is trimmed from the cache starts nothing.
		// Nor is the write tried again at once: a node that joins is written by several at the same time.
		s.entry.Writes.After = s.now.Add(s.Timing.RetryStale)
		s.wait, err = requeue.Sooner(s.wait, s.Timing.RetryStale), nil
	case err == nil && !s.held:
		s.entry.WriteError, s.entry.Writes.Backoff = "", 0
	case err != nil:
		s.entry.WriteError = err.Error()
		s.entry.Writes.Backoff = min(max(2*s.entry.Writes.Backoff, s.Timing.FirstRetry), s.Timing.LastRetry)
		s.entry.Writes.After = s.now.Add(s.entry.Writes.Backoff)
	}
	// A copy: an entry must not keep its scope, and with it the entry before, from being freed.
	entry := s.entry
	s.Fleet.Set(&entry)
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: s.wait}, nil
}

// sooner has the node looked at again after this time, if not before.
func (s *scope) sooner(wait time.Duration) { s.wait = requeue.Sooner(s.wait, wait) }

// unassessed drops the verdict on a node that the operator does not manage. The back-off stays: a release may fail, too.
func (s *scope) unassessed() {
	writes := &s.entry.Writes
	s.entry = fleet.Entry{
		Facts: s.entry.Facts, Basis: s.basis.Version, WriteError: s.entry.WriteError,
		Writes: fleet.Writes{Version: writes.Version, After: writes.After, Backoff: writes.Backoff},
	}
}

// discovering enters how node discovery fares on a node of which is unknown whether it has GPUs.
func (s *scope) discovering(ctx context.Context) error {
	if s.entry.Facts.Discovered {
		return nil
	}
	pods, err := observe.PodsOnNode(ctx, s.Client, s.Namespace, s.node.Name)
	if err != nil {
		return err
	}
	s.entry.Discovering = assess.DiscoveryOperands(s.Catalogue, pods, s.now)
	return nil
}

// manage reconciles a GPU node.
func (s *scope) manage(ctx context.Context) error {
	decisions := s.basis.Decisions
	found := s.discovery(ctx, decisions.Input.Spec, decisions.Missing(s.entry.Facts) != "")
	if found.gone && s.writes() {
		return s.release(ctx, labels.False)
	}
	s.sooner(found.wait)
	pods, err := observe.PodsOnNode(ctx, s.Client, s.Namespace, s.node.Name)
	if err != nil {
		return err
	}
	s.entry.Facts.StayedAway = found.stayedAway
	failure := s.label(ctx, found.notes, pods)
	s.assess(pods)
	if failure != nil {
		return failure
	}
	if err := s.startup(ctx, *decisions.Input.Spec.NodeStartup); err != nil {
		return err
	}
	return s.report(ctx)
}

// writes reports whether the Node may be written now.
func (s *scope) writes() bool {
	if s.basis.Paused() {
		// A policy that is no longer paused is another basis.
		return false
	}
	if left := s.entry.Writes.After.Sub(s.now); left > 0 {
		s.held = true
		s.sooner(left)
		return false
	}
	return true
}

// label writes the labels of the node, and the notes about its discovery. The facts follow what was written.
func (s *scope) label(ctx context.Context, notes map[string]*string, pods assess.Pods) error {
	if !s.writes() {
		return nil
	}
	read, now := s.node, fleet.LabelSource{Source: s.source(), Running: s.running(pods)}
	if len(notes) == 0 && s.entry.Writes.LabelsFrom == now {
		return nil
	}
	changes := s.basis.Decisions.NodeLabels(s.entry.Facts, s.node.Labels, now.Running)
	if len(changes) == 0 {
		s.entry.Writes.LabelsFrom = now
	}
	err := s.patchMetadata(ctx, changes, notes)
	if s.node != read {
		stayedAway := s.entry.Facts.StayedAway
		s.entry.Facts = observe.Facts(s.node)
		s.entry.Facts.StayedAway = stayedAway
	}
	return err
}

// running is what works on the node. A pod that was never ready does not.
func (s *scope) running(pods assess.Pods) (running plan.Running) {
	for i := range s.Catalogue {
		o := &s.Catalogue[i]
		pod := pods[o.Name]
		if pod == nil || !o.UpdatesOnDelete && !o.Injects || readiness.Pod(pod, "", s.now).State != readiness.Ready {
			continue
		}
		running.Driver = running.Driver || o.UpdatesOnDelete
		running.Injector = running.Injector || o.Injects
	}
	return running
}

// assess is the one assessment of the node in this reconcile, by the node as the labels have left it.
func (s *scope) assess(pods assess.Pods) {
	planned := s.plan()
	s.entry.Discovering = nil
	s.entry.NodePool, s.entry.DriverPool = planned.NodePool, cmp.Or(s.entry.Facts.Pool, planned.Pool.Name)
	s.entry.Latest = assess.Node(assess.Input{
		Plan: *planned, Node: s.node, Pods: pods, Stack: s.basis.Stack, Previous: s.standing(), Now: s.now,
	})
	var wait time.Duration
	s.entry.Report, wait = s.entry.Report.Next(s.entry.Latest, s.Timing.Dwell)
	s.sooner(wait)
	if until := s.entry.Latest.Until; !until.IsZero() {
		s.sooner(max(until.Sub(s.now), time.Millisecond))
	}
	s.join()
	s.entry.Basis = s.basis.Version
}

// standing is how the node was before this assessment. After a restart the condition has it, as it was reported: a time
// that may delay what follows from it, and never hasten it.
func (s *scope) standing() assess.Readiness {
	if s.entry.Latest.At.IsZero() {
		condition := assess.GPUReadyCondition(s.node)
		if condition == nil || condition.LastTransitionTime.After(s.now) {
			return assess.Readiness{}
		}
		return assess.ReadinessOf(condition)
	}
	return s.entry.Latest.Readiness()
}

// discoveryTime is the longest time between a node's joining and its being found to have GPUs that counts for
// it. A node that was there for longer is one that got its GPUs, or its policy, late: it joins now.
const discoveryTime = 10 * time.Minute

// join counts the stages that a node which joins has reached. One that joined before this operator started is not
// counted.
func (s *scope) join() {
	writes := &s.entry.Writes
	isNew := s.before == nil || s.before.Latest.At.IsZero()
	if writes.Joined.IsZero() && isNew && assess.GPUReadyCondition(s.node) == nil {
		writes.Joined = times.Later(s.node.CreationTimestamp.Time, s.basis.Policy.CreationTimestamp.Time)
		if s.now.Sub(writes.Joined) > discoveryTime {
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
		s.Meter.Joined(stages[writes.Reached], s.now.Sub(writes.Joined))
	}
	if s.entry.Latest.Ready() {
		writes.Joined, writes.Reached = time.Time{}, 0
	}
}

// wasManaged reports whether the operator has managed the node for sure. Labels such as nvidia.com/gpu.present may be an
// administrator's; without one of these marks they are.
func wasManaged(node *corev1.Node) bool {
	_, hasPool := node.Labels[labels.Pool]
	_, isLost := node.Annotations[labels.DiscoveryLostSince]
	return hasPool || isLost || assess.GPUReadyCondition(node) != nil
}

// marked reports whether the operator or its node discovery has written on the node for sure.
func marked(node *corev1.Node) bool {
	_, isDiscovered := node.Annotations[labels.Discovered]
	_, isTainted := node.Annotations[labels.StartupTaints]
	return isDiscovered || isTainted || wasManaged(node)
}

// isLeft reports whether a node that the operator does not manage has a condition or taints of it: a release has failed
// after the labels were written, by which the node is no longer managed.
func isLeft(node *corev1.Node) bool {
	_, isTainted := node.Annotations[labels.StartupTaints]
	return isTainted || assess.GPUReadyCondition(node) != nil
}
