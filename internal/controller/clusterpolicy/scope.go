package clusterpolicy

import (
	"context"
	"errors"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/controller/requeue"
	"github.com/clusterpolicy/gpu-operator/internal/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/metrics"
	"github.com/clusterpolicy/gpu-operator/internal/observe"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/plan"
	"github.com/clusterpolicy/gpu-operator/internal/render"
	"github.com/clusterpolicy/gpu-operator/internal/status"
)

// scope is one pass: what it has found and made so far.
type scope struct {
	*Reconciler
	now time.Time
	// policy is the one in force, nil for none; all are all policies.
	policy *v1.ClusterPolicy
	all    []v1.ClusterPolicy

	// What was observed.
	fleet         fleet.View
	snapshot      observe.Snapshot
	optionalKinds map[operand.OptionalKind]bool
	missingFields []string
	// recorded is the spec that was last applied, and read the one of the policy.
	lastApplied, current observe.Applied
	// dropped are the fields of the spec that a write of the policy would lose.
	droppedFields []string
	// frozen: the spec is not surely whole, so that nothing is changed and no policy written.
	frozen bool
	// idle: the policy in force may be gone, so that nothing is done and nothing reported.
	staleCache bool

	// What was decided, and what nodes are assessed by.
	basis   *fleet.Basis
	planned plan.Plan
	// objects are what is to be applied, and applied what came of it, by operand.
	objects map[operand.Name][]render.Object
	applied map[operand.Name]status.Outcome

	// err is what went wrong beside the operands.
	err error
	// wait is after how long to come back; 0 is never.
	requeueDelay time.Duration
}

func (r *Reconciler) newScope() *scope {
	return &scope{
		Reconciler: r, now: r.Clock.Now(),
		objects: map[operand.Name][]render.Object{}, applied: map[operand.Name]status.Outcome{},
	}
}

// fail notes what went wrong beside the operands.
func (s *scope) fail(err error) { s.err = errors.Join(s.err, err) }

// sooner has the next pass made after this time, if not before.
func (s *scope) requeueAfter(wait time.Duration) {
	s.requeueDelay = requeue.Sooner(s.requeueDelay, wait)
}

// close writes the status of all policies, and returns when to come back. What failed is told by the status, and tried
// again by the workqueue's back-off where it concerns no single operand: the objects have a back-off of their own.
func (s *scope) close(ctx context.Context) (reconcile.Result, error) {
	if s.policy == nil || !s.fleet.Hydrated {
		s.Meter.Passed(metrics.Pass{Failed: s.err != nil, MissingFields: len(s.missingFields)})
		return s.result()
	}
	if s.staleCache {
		return s.result()
	}
	pass := s.statusInput()
	if s.frozen {
		s.Meter.Passed(s.frozenMetrics(pass))
		return s.result()
	}
	if pass.Conflicts() {
		s.requeueAfter(s.Timing.RetryConflict)
	}
	s.requeueAfter(s.Applier.RetryAfter())
	failure := s.err
	if len(s.missingFields) == 0 {
		// Nobody knows whether they lose fields by that.
		s.markOthersIgnored(ctx)
	}
	computed := status.Compute(s.policy, pass)
	s.Meter.Passed(s.passMetrics(pass, computed, failure))
	if left := s.statusDelay(pass); left > 0 {
		s.requeueAfter(left)
		return s.result()
	}
	s.noteDeleted(s.writeStatus(ctx, s.policy, computed))
	return s.result()
}

func (s *scope) result() (reconcile.Result, error) {
	if s.err != nil {
		return reconcile.Result{}, s.err
	}
	return reconcile.Result{RequeueAfter: s.requeueDelay}, nil
}

// outcome is what the status follows from.
func (s *scope) statusInput() status.Pass {
	pass := status.Pass{
		Namespace: s.Namespace, Fleet: s.fleet, DaemonSets: s.snapshot.DaemonSets, Plan: s.planned,
		Applied: s.applied, MissingFields: s.missingFields, Err: s.err,
	}
	if s.basis != nil {
		pass.Behind = s.fleet.Behind(s.basis)
	}
	return pass
}

// settling is how much longer the nodes may take to be assessed by what this pass has decided before the status reports
// it; 0 where none is behind.
func (s *scope) statusDelay(pass status.Pass) time.Duration {
	if pass.Behind == 0 || pass.Err != nil {
		return 0
	}
	return s.Timing.StatusDelay - s.now.Sub(s.basis.Since)
}

// report writes a status, and returns what went wrong.
func (s *scope) writeStatus(ctx context.Context, policy *v1.ClusterPolicy, computed v1.ClusterPolicyStatus) error {
	wait, err := s.Status.Write(ctx, policy, computed)
	s.requeueAfter(wait)
	s.fail(err)
	return err
}

// ignoreOthers reports on every policy beside the one in force that it is not.
func (s *scope) markOthersIgnored(ctx context.Context) {
	for i := range s.all {
		if s.all[i].UID != s.policy.UID && s.all[i].DeletionTimestamp == nil {
			_ = s.writeStatus(ctx, &s.all[i], status.Ignored(&s.all[i], s.Namespace, s.policy.Name))
		}
	}
}

// measure is what Prometheus is told of a pass.
func (s *scope) passMetrics(pass status.Pass, computed v1.ClusterPolicyStatus, failure error) metrics.Pass {
	stats := metrics.Pass{
		Status: &computed, Failed: failure != nil || pass.Failed(), Discovered: s.fleet.AnyDiscovered, MissingFields: len(s.missingFields),
	}
	if len(pass.Plan.Steps) > 0 {
		input := pass.Plan.Input
		stats.Nodes = status.Places(s.fleet)
		stats.DriverToolkit, stats.DriverToolkitFound = input.UsesDriverToolkit(s.fleet.EachFacts()), input.DriverToolkit != nil
	}
	return stats
}

// measureFrozen is what Prometheus is told of a pass that has changed nothing, by what was last decided. Without that it is
// what the policy's status says.
func (s *scope) frozenMetrics(pass status.Pass) metrics.Pass {
	computed := s.policy.Status
	if len(pass.Plan.Steps) > 0 {
		computed = status.Compute(s.policy, pass)
	}
	stats := s.passMetrics(pass, computed, s.err)
	stats.Frozen = s.err == nil
	return stats
}
