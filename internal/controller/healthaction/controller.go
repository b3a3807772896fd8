package healthaction

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/cachefilter"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
)

// Options configure a Reconciler.
type Options struct {
	// Client reads from the cache and writes.
	Client client.Client
	// Fleet has the Basis and the assessments of the nodes. Each pass publishes its verdicts there.
	Fleet  *fleet.Fleet
	Clock  clock.PassiveClock
	Timing Timing
}

// Reconciler acts on nodes with unhealthy GPUs.
type Reconciler struct {
	Options
	memory memory
}

// New returns a Reconciler.
func New(options Options) *Reconciler { return &Reconciler{Options: options, memory: newMemory()} }

// Reconcile runs one pass, unless there is nothing to do: however many nodes there are, nothing is read then.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	if r.isIdle() {
		return reconcile.Result{}, nil
	}
	return r.newScope().run(ctx)
}

// isIdle reports whether the policy has no actions, and the last pass has found nothing to undo.
func (r *Reconciler) isIdle() bool {
	policy := policyOf(r.Fleet.Basis())
	return r.memory.idle && policy != nil && !policy.Acts()
}

// run is a pass: read, hold, plan, carry out the steps, publish the verdicts.
func (s *scope) run(ctx context.Context) (reconcile.Result, error) {
	if !s.IsDue(s.view.Hydrated, s.view.Nodes) {
		return s.Result(s.planned.Until)
	}
	if err := s.readNodes(ctx); err != nil {
		return reconcile.Result{}, err
	}
	s.holdNodes()
	s.memory.prune(func(node string) bool { return s.observed[node] != nil })
	s.plan()
	s.remember()
	if !s.Basis.Paused() {
		s.carryOut(ctx)
	}
	s.publish()
	return s.Result(s.planned.Until)
}

// SetupWithManager registers the controller and its watches.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	debounced := r.Timing.Debounced(r.Fleet)
	return ctrl.NewControllerManagedBy(mgr).Named("healthaction").
		Watches(&corev1.Node{}, debounced, builder.WithPredicates(cachefilter.HealthNodeChanges())).
		WatchesRawSource(source.Channel(r.Fleet.HealthActionsDue(), debounced)).
		WithOptions(r.Timing.Options()).Complete(r)
}
