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
	optional      map[operand.OptionalKind]bool
	missingFields []string
	// recorded is the spec that was last applied, and read the one of the policy.
	recorded, read observe.Applied
	// dropped are the fields of the spec that a write of the policy would lose.
	dropped []string
	// frozen: the spec is not surely whole, so that nothing is changed and no policy written.
	frozen bool
	// idle: the policy in force may be gone, so that nothing is done and nothing reported.
	idle bool

	// What was decided, and what nodes are assessed by.
	basis   *fleet.Basis
	planned plan.Plan
	// objects are what is to be applied, and applied what came of it, by operand.
	objects map[operand.Name][]render.Object
	applied map[operand.Name]status.Outcome

	// err is what went wrong beside the operands.
	err error
	// wait is after how long to come back; 0 is never.
	wait time.Duration
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
func (s *scope) sooner(wait time.Duration) { s.wait = requeue.Sooner(s.wait, wait) }

// close writes the status of all policies, and returns when to come back. What failed is told by the status, and tried
// again by the workqueue's back-off where it concerns no single operand: the objects have a back-off of their own.
func (s *scope) close(ctx context.Context) (reconcile.Result, error) {
	if s.policy == nil || !s.fleet.Hydrated {
		s.Meter.Passed(metrics.Pass{Failed: s.err != nil, MissingFields: len(s.missingFields)})
		return s.result()
	}
	if s.idle {
		return s.result()
	}
	pass := s.outcome()
	if s.frozen {
		s.Meter.Passed(s.measureFrozen(pass))
		return s.result()
	}
	if pass.Conflicts() {
		s.sooner(s.Timing.RetryConflict)
	}
	s.sooner(s.Applier.RetryAfter())
	failure := s.err
	if len(s.missingFields) == 0 {
		// Nobody knows whether they lose fields by that.
		s.ignoreOthers(ctx)
	}
	found := status.Compute(s.policy, pass)
	s.Meter.Passed(s.measure(pass, found, failure))
	if left := s.settling(pass); left > 0 {
		s.sooner(left)
		return s.result()
	}
	s.noteVanished(s.report(ctx, s.policy, found))
	return s.result()
}

func (s *scope) result() (reconcile.Result, error) {
	if s.err != nil {
		return reconcile.Result{}, s.err
	}
	return reconcile.Result{RequeueAfter: s.wait}, nil
}

// outcome is what the status follows from.
func (s *scope) outcome() status.Pass {
	pass := status.Pass{
		Namespace: s.Namespace, Fleet: s.fleet, DaemonSets: s.snapshot.DaemonSets, Plan: s.planned,
		Applied: s.applied, MissingFields: s.missingFields, Err: s.err,
	}
	if s.basis != nil {
		pass.Behind = s.fleet.StaleCount(s.basis)
	}
	return pass
}

// settling is how much longer the nodes may take to be assessed by what this pass has decided before the status reports
// it; 0 where none is behind.
func (s *scope) settling(pass status.Pass) time.Duration {
	if pass.Behind == 0 || pass.Err != nil {
		return 0
	}
	return s.Timing.Sweep - s.now.Sub(s.basis.Since)
}

// report writes a status, and returns what went wrong.
func (s *scope) report(ctx context.Context, policy *v1.ClusterPolicy, found v1.ClusterPolicyStatus) error {
	wait, err := s.Status.Write(ctx, policy, found)
	s.sooner(wait)
	s.fail(err)
	return err
}

// ignoreOthers reports on every policy beside the one in force that it is not.
func (s *scope) ignoreOthers(ctx context.Context) {
	for i := range s.all {
		if s.all[i].UID != s.policy.UID && s.all[i].DeletionTimestamp == nil {
			_ = s.report(ctx, &s.all[i], status.Ignored(&s.all[i], s.Namespace, s.policy.Name))
		}
	}
}

// measure is what Prometheus is told of a pass.
func (s *scope) measure(pass status.Pass, found v1.ClusterPolicyStatus, failure error) metrics.Pass {
	measured := metrics.Pass{
		Status: &found, Failed: failure != nil || pass.Failed(), Discovered: s.fleet.AnyDiscovered, MissingFields: len(s.missingFields),
	}
	if len(pass.Plan.Steps) > 0 {
		input := pass.Plan.Input
		measured.Nodes = status.Places(s.fleet)
		measured.DriverToolkit, measured.DriverToolkitFound = input.UsesDriverToolkit(s.fleet.EachFacts()), input.DriverToolkit != nil
	}
	return measured
}

// measureFrozen is what Prometheus is told of a pass that has changed nothing, by what was last decided. Without that it is
// what the policy's status says.
func (s *scope) measureFrozen(pass status.Pass) metrics.Pass {
	found := s.policy.Status
	if len(pass.Plan.Steps) > 0 {
		found = status.Compute(s.policy, pass)
	}
	measured := s.measure(pass, found, s.err)
	measured.Frozen = s.err == nil
	return measured
}
