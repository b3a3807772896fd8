package node

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/clusterpolicy/gpu-operator/internal/assess"
	"github.com/clusterpolicy/gpu-operator/internal/controller/requeue"
	"github.com/clusterpolicy/gpu-operator/internal/events"
	"github.com/clusterpolicy/gpu-operator/internal/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/metrics"
	"github.com/clusterpolicy/gpu-operator/internal/observe"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/plan"
	"github.com/clusterpolicy/gpu-operator/internal/readiness"
)

// workers assess nodes in parallel, so that a slow call for one holds up no other.
const workers = 8

// afterAllElse is the priority of assessing all nodes anew: events of nodes come first.
const afterAllElse = -100

// Options are what a Reconciler is made of.
type Options struct {
	// Client reads from the caches and writes; Live reads without a cache.
	Client client.Client
	Live   client.Reader
	// Catalogue is the sorted list of operands.
	Catalogue operand.Catalogue
	// Namespace of the operator and the operands.
	Namespace string
	// Fleet takes the entries, and has what nodes are assessed by.
	Fleet *fleet.Fleet
	// Events records that a node fails, and that it no longer does.
	Events *events.Recorder
	// Meter takes what Prometheus is told.
	Meter *metrics.Meter
	Clock clock.PassiveClock
	// Timing are the waits.
	Timing Timing
}

// Reconciler keeps the labels, the condition, the start-up taints and the fleet entry of each node.
type Reconciler struct {
	Options
	// refused are the changes of taints that the API server has refused.
	refused *refusals
}

// New returns a Reconciler that is complete.
func New(options Options) *Reconciler {
	return &Reconciler{Options: options, refused: newRefusals(options.Clock)}
}

// Reconcile assesses one node, once, and writes what follows from that: labels, entry, taints and condition.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	s, err := r.newScope(ctx, request.Name)
	switch {
	case err != nil || s == nil:
		return reconcile.Result{}, err
	case s.isStale():
		return reconcile.Result{RequeueAfter: r.Timing.RetryStale}, nil
	}
	err = s.reconcile(ctx)
	return s.close(err)
}

// Hydrate enters the nodes of the cluster with their facts, so that the first pass knows of all of them. It ends at once
// and implements manager.Runnable.
func (r *Reconciler) Hydrate(ctx context.Context) error {
	nodes := &corev1.NodeList{}
	if err := r.Client.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	entries := make([]*fleet.Entry, 0, len(nodes.Items))
	for i := range nodes.Items {
		entries = append(entries, &fleet.Entry{Facts: observe.Facts(&nodes.Items[i])})
	}
	r.Fleet.Hydrate(entries)
	return nil
}

// SetupWithManager registers the controller, its watches and the index of pods by node.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, observe.PodNodeField, observe.IndexPodNode); err != nil {
		return err
	}
	if err := mgr.Add(manager.RunnableFunc(r.Hydrate)); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).Named("node").
		For(&corev1.Node{}, builder.WithPredicates(observe.NodeChanges(r.selects, r.hasWritten))).
		Watches(&corev1.Pod{}, requeue.After(r.batch, nodeOfPod), builder.WithPredicates(observe.PodChanges())).
		WatchesRawSource(source.Channel(r.Fleet.Published(), requeue.All(afterAllElse, r.everyNode))).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](r.Timing.FirstRetry, r.Timing.LastRetry),
		}).Complete(r)
}

// selects reports whether the spec selects nodes by a label.
func (r *Reconciler) selects(label string) bool {
	basis := r.Fleet.Basis()
	return basis != nil && basis.Selects(label)
}

// hasWritten reports whether the condition is the one that the operator has for the node.
func (r *Reconciler) hasWritten(node string, condition *corev1.NodeCondition) bool {
	entry := r.Fleet.Get(node)
	if entry == nil || entry.Basis == 0 || entry.Writes.Stage != "" {
		return false
	}
	return isSame(node, condition, &entry.Report.Assessment)
}

// batch is how long a node is left after an event of this pod of it.
func (r *Reconciler) batch(object client.Object) time.Duration {
	shortest := min(r.Timing.Batch+time.Duration(r.Fleet.Starting())*r.Timing.BatchPerNode, r.Timing.LongestBatch)
	if pod, isPod := object.(*corev1.Pod); isPod && r.isStep(pod) {
		return max(shortest, r.Timing.Step)
	}
	return shortest
}

// isStep reports whether a node that is starting goes on to start whatever has happened to this pod: it does not fail,
// others do not come after it, and it is not the last one to be ready.
func (r *Reconciler) isStep(pod *corev1.Pod) bool {
	nodes := observe.IndexPodNode(pod)
	if len(nodes) == 0 {
		return false
	}
	entry := r.Fleet.Get(nodes[0])
	if entry == nil || !entry.Starting() {
		return false
	}
	switch readiness.Pod(pod, "", r.Clock.Now()).State {
	case readiness.Failed:
		return false
	case readiness.Ready:
		return !r.comesFirst(pod) && !r.isComplete(entry)
	}
	return true
}

// comesFirst reports whether labels of the node wait for this pod to be ready.
func (r *Reconciler) comesFirst(pod *corev1.Pod) bool {
	o, known := r.Catalogue.Find(operand.Name(pod.Labels[labels.Operand]))
	return known && o.Injects
}

// isComplete reports whether each operand that the node needs has a ready pod on it.
func (r *Reconciler) isComplete(entry *fleet.Entry) bool {
	if entry.Planned == nil {
		return true
	}
	pods, err := observe.PodsOnNode(context.Background(), r.Client, r.Namespace, entry.Facts.Name)
	if err != nil {
		return true
	}
	for _, rung := range entry.Planned.Node.Rungs {
		if rung.Need != plan.Expected {
			continue
		}
		if pod := pods[rung.Operand]; pod == nil || readiness.Pod(pod, "", r.Clock.Now()).State != readiness.Ready {
			return false
		}
	}
	return true
}

func nodeOfPod(pod client.Object) []reconcile.Request {
	nodes := observe.IndexPodNode(pod)
	if len(nodes) == 0 {
		return nil
	}
	return []reconcile.Request{named(nodes[0])}
}

func named(node string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: node}}
}

// everyNode is for what concerns all nodes: another spec, another template.
func (r *Reconciler) everyNode() []reconcile.Request {
	names := r.Fleet.Names()
	requests := make([]reconcile.Request, 0, len(names))
	for _, name := range names {
		requests = append(requests, named(name))
	}
	return requests
}

// isSame reports whether the condition of a node reports this assessment already.
func isSame(node string, condition *corev1.NodeCondition, assessment *assess.Assessment) bool {
	wanted := assessment.Condition(node)
	return condition.Status == wanted.Status && condition.Reason == wanted.Reason &&
		assess.MessageUpToDate(condition.Message, assessment.Cause(node), wanted.Message)
}
