package healthaction

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/cachefilter"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/kube/requeue"
)

// allNodes is the only key of the work queue: the brakes concern all nodes.
var allNodes = reconcile.Request{NamespacedName: client.ObjectKey{Name: "nodes"}}

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
	if !s.isDue() {
		return s.result()
	}
	if left := s.assessmentLeft(); left > 0 {
		s.requeueAfter(left)
		return s.result()
	}
	if err := s.readNodes(ctx); err != nil {
		return reconcile.Result{}, err
	}
	s.holdNodes()
	s.memory.prune(func(node string) bool { return s.observed[node] != nil })
	s.plan()
	s.remember()
	if !s.basis.Paused() {
		s.carryOut(ctx)
	}
	s.publish()
	return s.result()
}

// SetupWithManager registers the controller and its watches.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("healthaction").
		Watches(&corev1.Node{}, r.debounced(), builder.WithPredicates(cachefilter.HealthNodeChanges())).
		WatchesRawSource(source.Channel(r.Fleet.HealthActionsDue(), r.debounced())).
		WithOptions(controller.Options{
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](
				r.Timing.FirstRetry, r.Timing.LastRetry,
			),
		}).Complete(r)
}

// debounced enqueues a pass for any event, after the debounce time.
func (r *Reconciler) debounced() handler.EventHandler {
	return requeue.EnqueueAfter(
		func(client.Object) time.Duration {
			t := &r.Timing
			return min(t.Debounce+time.Duration(r.Fleet.Starting())*t.DebouncePerNode, t.MaxDebounce)
		},
		func(client.Object) []reconcile.Request { return []reconcile.Request{allNodes} },
	)
}
