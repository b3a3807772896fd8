package clusterpolicy

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	"github.com/clusterpolicy/gpu-operator/internal/metrics"
	"github.com/clusterpolicy/gpu-operator/internal/observe"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/render"
	"github.com/clusterpolicy/gpu-operator/internal/status"
)

// A pass waits for more events before it starts: a thousand nodes that come up together cause some passes, not
// thousands.
const (
	// batch is how long it waits.
	batch = 500 * time.Millisecond
	// batchPerNode comes on top where nodes, their pods and what the DaemonSets tell of these change: with more nodes
	// there is always something, and each pass costs more.
	batchPerNode = time.Millisecond
	// longestBatch bounds both together.
	longestBatch = 2 * time.Second
)

const (
	// firstRetry and lastRetry bound the wait after a failed call. The last is short, as the same
	// pass tells the status of everything else.
	firstRetry, lastRetry = 100 * time.Millisecond, 30 * time.Second
	// retryConflict is how often an object that belongs to somebody else is looked at.
	retryConflict = 30 * time.Second
)

// theCluster is the only key: a pass is about the policy in force, whatever event started it.
var theCluster = reconcile.Request{NamespacedName: types.NamespacedName{Name: "cluster"}}

// Reconciler makes the cluster follow the policy in force.
type Reconciler struct {
	// Client reads from the caches and writes.
	Client client.Client
	// Applier writes the objects of the stack.
	Applier *apply.Applier
	// OwnNamespace writes the labels of the operator's namespace.
	OwnNamespace *apply.Namespace
	// Status writes the status of policies.
	Status *status.Writer
	// Catalogue is the sorted list of operands.
	Catalogue []operand.Operand
	// Namespace of the operator and the operands.
	Namespace string
	// HelperImage is the operator's own image.
	HelperImage string
	// Metrics is how the manager serves its metrics.
	Metrics operand.MetricsEndpoint
	// DriverToolkit reads the images of OpenShift's driver toolkit.
	DriverToolkit *observe.DriverToolkit
	// CreateFailures finds out why DaemonSets lack pods.
	CreateFailures *observe.CreateFailures
	// References holds what operands need of others.
	References cache.Cache
	// Schema compares the definition of ClusterPolicy with the operator's own.
	Schema *observe.Schema
	// Meter takes what Prometheus is told.
	Meter *metrics.Meter
	// Clock tells the time.
	Clock clock.PassiveClock

	optional  optionalKinds
	observer  *observe.Observer
	blueprint blueprint
	memory    status.Memory
	// nodes is how many the last pass has seen.
	nodes atomic.Int64
}

// Reconcile makes one pass.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	active, all, err := observe.Policies(ctx, r.Client)
	if err != nil {
		r.Meter.Passed(metrics.Pass{Failed: true})
		return reconcile.Result{}, err
	}
	if len(all) == 0 {
		r.Meter.Passed(metrics.Pass{})
		return reconcile.Result{}, r.OwnNamespace.Privileged(ctx, false)
	}
	result, err := r.ignore(ctx, active, all)
	if active == nil {
		r.Meter.Passed(metrics.Pass{Failed: err != nil})
		return result, err
	}
	pass := status.Pass{
		Namespace: r.Namespace, Catalogue: r.Catalogue, Applied: map[operand.Name]status.Outcome{}, Now: r.Clock.Now(),
		Places: map[metrics.Place]int{},
	}
	pass.Err = r.pass(ctx, active, &pass)
	result.RequeueAfter = requeue.Sooner(result.RequeueAfter, r.createFailures(ctx, &pass))
	if err := r.readPods(ctx, &pass); err != nil {
		r.Meter.Passed(metrics.Pass{Failed: true})
		return reconcile.Result{}, err
	}
	if pass.Conflicts() {
		result.RequeueAfter = requeue.Sooner(result.RequeueAfter, retryConflict)
	}
	found, until := status.Compute(active, pass)
	r.Meter.Passed(measure(pass, found))
	if !until.IsZero() {
		result.RequeueAfter = requeue.Sooner(result.RequeueAfter, until.Sub(pass.Now))
	}
	return r.report(ctx, result, active, found, errors.Join(err, pass.Failure()))
}

// report writes a status and folds what comes of it into the result.
func (r *Reconciler) report(ctx context.Context, result reconcile.Result, policy *v1.ClusterPolicy,
	found v1.ClusterPolicyStatus, failure error,
) (reconcile.Result, error) {
	wait, err := r.Status.Write(ctx, policy, found)
	if apierrors.IsConflict(err) {
		// Somebody changed the policy meanwhile; the cache will show it in a moment.
		wait, err = batch, nil
	}
	result.RequeueAfter = requeue.Sooner(result.RequeueAfter, wait)
	if err = errors.Join(failure, err); err != nil {
		return reconcile.Result{}, err
	}
	return result, nil
}

// ignore tells every policy beside the one in force that it is not.
func (r *Reconciler) ignore(ctx context.Context, active *v1.ClusterPolicy, all []v1.ClusterPolicy) (reconcile.Result, error) {
	result := reconcile.Result{}
	var failure error
	for i := range all {
		if active == nil || all[i].UID == active.UID || all[i].DeletionTimestamp != nil {
			continue
		}
		result, failure = r.report(ctx, result, &all[i], status.Ignored(&all[i], r.Namespace, active.Name), failure)
	}
	return result, failure
}

// SetupWithManager registers the controller and its watches.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.observer = observe.NewObserver(r.Client, r.Namespace)
	b := ctrl.NewControllerManagedBy(mgr).Named("clusterpolicy").
		Watches(&v1.ClusterPolicy{}, afterBatch(), builder.WithPredicates(observe.PolicyChanges())).
		Watches(&corev1.Node{}, r.afterCrowd(), builder.WithPredicates(observe.NodeChanges(r.Client, r.Catalogue))).
		Watches(&corev1.Pod{}, r.afterCrowd(), builder.WithPredicates(r.observer.Pods(), observe.PodChanges()))
	for _, kind := range render.Kinds() {
		b = b.Watches(kind, r.afterCrowd())
	}
	b = b.Watches(observe.Definition(), afterBatch(), builder.WithPredicates(definitionInUse()))
	b = b.WatchesRawSource(source.Channel(r.DriverToolkit.Events(), afterBatch()))
	for _, kind := range observe.ReferenceKinds() {
		b = b.WatchesRawSource(source.Kind(r.References, kind, afterBatch(), observe.ContentChanges()))
	}
	c, err := b.WithOptions(controller.Options{
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
	}).Build(r)
	r.optional = optionalKinds{cache: mgr.GetCache(), mapper: mgr.GetRESTMapper(), controller: c, watched: map[operand.OptionalKind]bool{}}
	return err
}

// afterBatch enqueues the pass for any event, after the batching delay.
func afterBatch() handler.EventHandler {
	return after(func() time.Duration { return batch })
}

// afterCrowd does so for events of which there are the more, the more nodes there are.
func (r *Reconciler) afterCrowd() handler.EventHandler {
	return after(func() time.Duration { return crowdBatch(r.nodes.Load()) })
}

func crowdBatch(nodes int64) time.Duration {
	return min(batch+time.Duration(nodes)*batchPerNode, longestBatch)
}

func after(delay func() time.Duration) handler.EventHandler {
	return requeue.After(delay, func(client.Object) []reconcile.Request { return []reconcile.Request{theCluster} })
}
