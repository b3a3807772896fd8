package clusterpolicy

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/apply"
	"github.com/clusterpolicy/gpu-operator/internal/controller/requeue"
	"github.com/clusterpolicy/gpu-operator/internal/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/metrics"
	"github.com/clusterpolicy/gpu-operator/internal/observe"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/render"
	"github.com/clusterpolicy/gpu-operator/internal/statuswriter"
)

// theCluster is the only key: a pass is about the policy in force, whatever event started it.
var theCluster = reconcile.Request{NamespacedName: types.NamespacedName{Name: "cluster"}}

// Options are what a Reconciler is made of.
type Options struct {
	// Client reads from the caches and writes; Live reads without a cache.
	Client client.Client
	Live   client.Reader
	// Applier writes the objects of the stack.
	Applier *apply.Applier
	// Status writes the status of policies.
	Status *statuswriter.Writer
	// Fleet has what is known of the nodes, and takes what they are assessed by.
	Fleet *fleet.Fleet
	// Catalogue is the sorted list of operands.
	Catalogue operand.Catalogue
	// Namespace of the operator and the operands.
	Namespace string
	// HelperImage is the operator's own image.
	HelperImage string
	// Metrics is how the manager serves its metrics.
	Metrics operand.MetricsEndpoint
	// DriverToolkit reads the images of OpenShift's driver toolkit.
	DriverToolkit *observe.DriverToolkit
	// CreateFailures finds out why DaemonSets have fewer pods than nodes.
	CreateFailures *observe.CreateFailures
	// References holds what operands need of others.
	References cache.Cache
	// Schema compares the definition of ClusterPolicy with the operator's own.
	Schema *observe.Schema
	// Kinds are those that other projects define.
	Kinds *OptionalKinds
	// Meter takes what Prometheus is told.
	Meter *metrics.Meter
	Clock clock.PassiveClock
	// Timing are the waits.
	Timing Timing
}

// Reconciler makes the cluster follow the policy in force.
type Reconciler struct {
	Options
	drafts drafts
	doubt  doubt
	// vanished is the policy in force as the cache has it, where the API server had none.
	vanished vanished
	// nodes is how many the last pass has seen.
	nodes atomic.Int64
}

// New returns a Reconciler that is complete.
func New(options Options) *Reconciler { return &Reconciler{Options: options} }

// Reconcile makes one pass: observe, plan, render, apply, status. The status is written on every path, also after a
// failure.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (result reconcile.Result, err error) {
	s := r.newScope()
	defer func() { result, err = s.close(ctx) }()
	if !s.observe(ctx) {
		return
	}
	s.plan()
	s.render(ctx)
	s.apply(ctx)
	return
}

// SetupWithManager registers the controller and its watches.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	b := ctrl.NewControllerManagedBy(mgr).Named("clusterpolicy").
		Watches(&v1.ClusterPolicy{}, after(func() time.Duration { return 0 }), builder.WithPredicates(observe.PolicyChanges())).
		WatchesRawSource(source.Channel(r.Fleet.Changed(), r.afterBatch())).
		WatchesRawSource(source.Channel(r.Applier.Events(), r.afterBatch())).
		WatchesRawSource(source.Channel(r.DriverToolkit.Events(), r.afterBatch())).
		WatchesRawSource(source.Channel(r.Kinds.Events(), r.afterBatch())).
		Watches(observe.Definition(), r.afterBatch(), builder.WithPredicates(definitionInUse()))
	for _, kind := range render.Kinds() {
		b = b.Watches(kind, r.afterBatch())
	}
	for _, kind := range observe.ReferenceKinds() {
		b = b.WatchesRawSource(source.Kind(r.References, kind, r.afterBatch(), observe.ContentChanges()))
	}
	return b.WithOptions(controller.Options{
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](r.Timing.FirstRetry, r.Timing.LastRetry),
	}).Complete(r)
}

// afterBatch enqueues the pass for any event, after the batching delay.
func (r *Reconciler) afterBatch() handler.EventHandler {
	return after(func() time.Duration { return r.Timing.batch(int(r.nodes.Load())) })
}

func after(delay func() time.Duration) handler.EventHandler {
	return requeue.EnqueueAfter(func(client.Object) time.Duration { return delay() },
		func(client.Object) []reconcile.Request { return []reconcile.Request{theCluster} })
}
