package clusterpolicy

import (
	"context"
	"errors"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/kube/requeue"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
	"github.com/clusterpolicy/gpu-operator/internal/stack/drivertoolkit"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/status"
	"github.com/clusterpolicy/gpu-operator/internal/status/metrics"
)

// scope is the state of one pass.
type scope struct {
	*Reconciler
	now time.Time
	// policy is the active one, else the one that is being removed, nil if there is none. all includes it.
	policy *v1.ClusterPolicy
	all    []v1.ClusterPolicy

	// What was read.
	view          fleet.View
	snapshot      observe.Snapshot
	optionalKinds map[operand.OptionalKind]bool
	// drivers are the NVIDIADriver objects, used or not.
	drivers       []v1alpha1.NVIDIADriver
	missingFields []string
	// missingDriverFields are those of the definition of NVIDIADriver, if the policy uses the objects.
	missingDriverFields []string
	// driverToolkitUnread means that the images of the driver toolkit are needed and could not be read.
	driverToolkitUnread bool
	// lastApplied and current identify the spec that was last applied and that of the policy.
	lastApplied, current observe.SpecID
	// droppedFields are the fields of the spec that a write of the policy would lose.
	droppedFields []string
	// frozen means that the spec may be truncated, or that NVIDIA's operator is at work: this pass applies nothing and
	// writes no policy, but for a condition about that operator.
	frozen bool
	// undecodable says why the active policy cannot be decoded; empty if it can. It is frozen then, and has a
	// status unless the definition lacks fields.
	undecodable string
	// removing means that the policy is being deleted and its stack has to be removed first; removed that this is done.
	// left are the nodes that still have something of it, and unseen the number of those that were not looked at yet.
	removing, removed bool
	left              []*fleet.Entry
	unseen            int
	// staleCache means that the policy may have been deleted: this pass does nothing and reports nothing.
	staleCache bool

	// What the spec and what it refers to mean, the plan of that, and the published basis.
	decisions *plan.Decisions
	planned   plan.Plan
	basis     *fleet.Basis
	// objects has the rendered objects and applied the results of applying them, by operand.
	objects map[operand.Name][]manifest.Object
	applied map[operand.Name]status.ApplyResult

	// err joins the errors that concern no single operand.
	err error
	// requeueDelay is the time until the next pass without an event; 0 for none.
	requeueDelay time.Duration
}

func (r *Reconciler) newScope() *scope {
	return &scope{
		Reconciler: r, now: r.Clock.Now(),
		objects: map[operand.Name][]manifest.Object{}, applied: map[operand.Name]status.ApplyResult{},
	}
}

// fail adds an error that concerns no single operand; nil is ignored.
func (s *scope) fail(err error) { s.err = errors.Join(s.err, err) }

// requeueAfter schedules the next pass after this time at the latest; 0 is ignored.
func (s *scope) requeueAfter(wait time.Duration) {
	s.requeueDelay = requeue.MinDelay(s.requeueDelay, wait)
}

// close writes the status of all policies and returns the result of the pass. Errors are in the status; those that
// concern no single operand are also returned, for the back-off of the work queue. Objects have a back-off of their
// own.
func (s *scope) close(ctx context.Context) (reconcile.Result, error) {
	if s.policy == nil || !s.view.Hydrated {
		s.Meter.ObservePass(metrics.PassStats{
			Failed: s.err != nil, MissingFields: len(s.missingFields) + len(s.missingDriverFields),
			Frozen: s.frozen && s.err == nil,
		})
		return s.result()
	}
	if s.staleCache {
		return s.result()
	}
	if s.removing && !s.frozen {
		return s.closeRemoval(ctx)
	}
	in := s.statusInput()
	if s.keepsStatus() {
		s.Meter.ObservePass(s.frozenMetrics(in))
		return s.result()
	}
	if in.Conflicts() {
		s.requeueAfter(s.Timing.RetryConflict)
	}
	s.requeueAfter(s.Applier.RetryAfter())
	failure := s.err
	s.markOthersIgnored(ctx)
	s.addClusterNotes(ctx, &in)
	computed := status.Compute(s.policy, in)
	s.Meter.ObservePass(s.passMetrics(in, computed, failure))
	if left := s.statusDelay(in); left > 0 {
		s.requeueAfter(left)
		return s.result()
	}
	s.noteDeleted(s.writeStatus(ctx, s.policy, computed))
	s.reportDrivers(ctx, in)
	return s.result()
}

func (s *scope) result() (reconcile.Result, error) {
	if s.err != nil {
		return reconcile.Result{}, s.err
	}
	return reconcile.Result{RequeueAfter: s.requeueDelay}, nil
}

// statusInput returns what the status is computed from.
func (s *scope) statusInput() status.Input {
	in := status.Input{
		Namespace: s.Namespace, View: s.view, DaemonSets: s.snapshot.DaemonSets, Plan: s.planned,
		Applied: s.applied, MissingFields: s.missingFields, MissingDriverFields: s.missingDriverFields,
		IgnoredVariables: s.Ignored, Undecodable: s.undecodable, Err: s.err,
	}
	if s.basis != nil {
		in.Unassessed = s.view.UnassessedCount(s.basis)
	}
	return in
}

// addClusterNotes adds a sentence for each doubtful thing about the cluster: a version of Kubernetes that this release
// is not tested with, and namespaces that nothing monitors. It schedules the next look, as nothing reports their end.
func (s *scope) addClusterNotes(ctx context.Context, in *status.Input) {
	for _, note := range []string{s.ServerVersion.Text(ctx), s.monitoringNote(ctx)} {
		if note != "" {
			in.Notes = append(in.Notes, note)
			s.requeueAfter(observe.NoteInterval)
		}
	}
}

// monitoringNote returns a sentence if OpenShift's cluster monitoring is to scrape what the operands serve, and does
// not; empty otherwise.
func (s *scope) monitoringNote(ctx context.Context) string {
	in := s.planned.Input
	if s.planned.Decisions == nil || !in.OpenShift() || !in.Optional[operand.ServiceMonitor] {
		return ""
	}
	return s.monitoring.Text(ctx)
}

// statusDelay returns how long the status still waits for nodes to be assessed by the basis of this pass; 0 if none is
// behind.
func (s *scope) statusDelay(in status.Input) time.Duration {
	if in.Unassessed == 0 || in.Err != nil || in.Undecodable != "" {
		return 0
	}
	return s.Timing.StatusDelay - s.now.Sub(s.basis.Since)
}

// writeStatus writes a status, requeues if the writer postpones it, and returns the error.
func (s *scope) writeStatus(ctx context.Context, policy *v1.ClusterPolicy, computed v1.ClusterPolicyStatus) error {
	wait, err := s.Status.Write(ctx, policy, computed)
	s.requeueAfter(wait)
	s.fail(err)
	return err
}

// markOthersIgnored writes the status Ignored to every policy that is not active.
func (s *scope) markOthersIgnored(ctx context.Context) {
	for i := range s.all {
		other := &s.all[i]
		if other.UID == s.policy.UID || other.DeletionTimestamp != nil {
			continue
		}
		// A write may drop fields that the CRD has no schema for.
		if len(s.missingFields) == 0 {
			_ = s.writeStatus(ctx, other, status.Ignored(other, s.Namespace, s.policy))
		}
	}
}

// passMetrics returns the metrics of a pass.
func (s *scope) passMetrics(in status.Input, computed v1.ClusterPolicyStatus, failure error) metrics.PassStats {
	stats := metrics.PassStats{
		Status: &computed, Failed: failure != nil || in.NeedsRetry(), Discovered: s.view.AnyDiscovered,
		MissingFields: len(s.missingFields) + len(s.missingDriverFields), Frozen: s.undecodable != "",
	}
	stats.HealthActions = status.CountHealthActions(s.view)
	if len(in.Plan.Steps) > 0 {
		input := in.Plan.Input
		stats.Nodes, stats.Upgrades = status.CountNodes(s.view), status.CountUpgrades(s.view)
		stats.MIGFailed = status.CountMIGFailed(s.view)
		stats.AutoUpgrade = *input.Spec.Driver.Enabled && *input.Spec.Driver.UpgradePolicy.AutoUpgrade
		stats.DriverToolkit = s.driverToolkitMetrics(input)
	}
	return stats
}

// driverToolkitMetrics returns what the nodes need of the driver toolkit. What an ImageStream that was not read has is
// unknown.
func (s *scope) driverToolkitMetrics(input operand.Input) metrics.DriverToolkit {
	use := drivertoolkit.UseOf(input, s.view.EachFacts())
	found := metrics.DriverToolkit{Needed: use.Needed, ReleaseUnknown: use.ReleaseUnknown, Unread: s.driverToolkitUnread}
	if !found.Unread {
		found.StreamMissing, found.TagMissing, found.StreamBroken = use.StreamMissing, use.TagMissing, use.StreamBroken
	}
	return found
}

// frozenMetrics returns the metrics of a frozen pass, computed from the last decisions. If there are none, they are
// those of the policy's present status.
func (s *scope) frozenMetrics(in status.Input) metrics.PassStats {
	computed := s.policy.Status
	if len(in.Plan.Steps) > 0 {
		computed = status.Compute(s.policy, in)
	}
	stats := s.passMetrics(in, computed, s.err)
	stats.Frozen = s.err == nil
	return stats
}
