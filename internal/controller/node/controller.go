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

	"github.com/clusterpolicy/gpu-operator/internal/cluster/cachefilter"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/kube/events"
	"github.com/clusterpolicy/gpu-operator/internal/kube/requeue"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/status/metrics"
)

// workers is the number of concurrent reconciles, so that a slow call for one node does not delay others.
const workers = 8

// resyncPriority is that of assessing all nodes again: events of single nodes come first.
const resyncPriority = -100

// actionsPriority is that of nodes whose health action has changed: it is that of an event of the node.
const actionsPriority = 0

// Options configure a Reconciler.
type Options struct {
	// Client reads from the caches and writes; Live reads from the API server.
	Client client.Client
	Live   client.Reader
	// Logs reads the log of the MIG manager; nil reads none.
	Logs LogReader
	// Catalogue is the sorted list of operands.
	Catalogue operand.Catalogue
	// Namespace is that of the operator and the operands.
	Namespace string
	// Fleet stores the entries, and has the Basis.
	Fleet *fleet.Fleet
	// Events records failures of nodes, and their end.
	Events *events.Recorder
	// Meter collects the operator's metrics.
	Meter  *metrics.Meter
	Clock  clock.PassiveClock
	Timing Timing
}

// Reconciler maintains the labels, the condition, the start-up taints and the fleet entry of each node.
type Reconciler struct {
	Options
	// taintBackoff holds back changes of taints that the API server has rejected.
	taintBackoff *taintBackoff
	// rereads are the nodes whose pods are being replaced, so that they read a changed configuration.
	rereads *rereads
	// logReaders has an element for each worker that reads a log.
	logReaders chan struct{}
}

// New returns a Reconciler.
func New(options Options) *Reconciler {
	return &Reconciler{
		Options: options, taintBackoff: newTaintBackoff(options.Clock), rereads: newRereads(),
		logReaders: make(chan struct{}, maxLogReaders),
	}
}

// Reconcile assesses one node and writes labels, taints, condition and entry accordingly.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	s, err := r.newScope(ctx, request.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	if s == nil {
		r.Fleet.Delete(request.Name)
		return reconcile.Result{}, nil
	}
	return s.run(ctx)
}

// run is the reconcile of a node that exists.
func (s *scope) run(ctx context.Context) (reconcile.Result, error) {
	if s.isStale() {
		return reconcile.Result{RequeueAfter: s.Timing.RetryStale}, nil
	}
	s.entry.Writes.Version = ""
	return s.finish(s.reconcile(ctx))
}

// Hydrate adds an entry with the facts of each node to the fleet, so that the first pass sees all nodes. It implements
// manager.RunnableFunc and returns when done.
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

// SetupWithManager registers the controller, its watches, and the index of pods by node unless the client has one.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	if !observe.HasPodIndex(r.Client) {
		if err := mgr.GetFieldIndexer().IndexField(
			ctx, &corev1.Pod{}, observe.PodNodeField, observe.IndexPodNode,
		); err != nil {
			return err
		}
	}
	if err := mgr.Add(manager.RunnableFunc(r.Hydrate)); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).Named("node").
		For(&corev1.Node{}, builder.WithPredicates(cachefilter.NodeChanges(r.selects, r.isPublished))).
		Watches(&corev1.Pod{}, requeue.EnqueueAfter(r.debounceDelay, nodeOfPod),
			builder.WithPredicates(cachefilter.PodChanges())).
		WatchesRawSource(source.Channel(r.Fleet.Published(), requeue.EnqueueAll(resyncPriority, r.allNodes))).
		WatchesRawSource(source.Channel(r.Fleet.HealthActionsChanged(),
			requeue.EnqueueAll(actionsPriority, r.nodesWithOtherActions))).
		WatchesRawSource(source.Channel(r.Fleet.NeighboursChanged(),
			requeue.EnqueueAll(resyncPriority, r.nodesWithOtherNeighbours))).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers,
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](
				r.Timing.FirstRetry, r.Timing.LastRetry,
			),
		}).Complete(r)
}

// selects reports whether the spec selects nodes by the label.
func (r *Reconciler) selects(label string) bool {
	basis := r.Fleet.Basis()
	return basis != nil && basis.Selects(label)
}

// isPublished reports whether the condition equals the node's report, and no stage is waiting to be written.
func (r *Reconciler) isPublished(node *corev1.Node) bool {
	entry := r.Fleet.Get(node.Name)
	if entry == nil || entry.BasisVersion == 0 || entry.Writes.Stage != "" {
		return false
	}
	return reportShows(node, &entry.Report.Assessment)
}

// debounceDelay returns how long after an event of the pod its node is reconciled: the longer, the more nodes are
// starting. Labels that wait for this pod are written immediately once it is ready, as further pods start by them; the
// condition is written soon after the last pod is ready.
func (r *Reconciler) debounceDelay(object client.Object) time.Duration {
	busy := min(r.Timing.Debounce+time.Duration(r.Fleet.Starting())*r.Timing.DebouncePerNode, r.Timing.MaxDebounce)
	pod, isPod := object.(*corev1.Pod)
	if !isPod {
		return busy
	}
	entry := r.startingNode(pod)
	if entry == nil {
		return busy
	}
	switch readiness.Pod(pod, "", r.Clock.Now()).State {
	case readiness.Failed:
		return busy
	case readiness.Ready:
		switch {
		case r.gatesLabels(pod):
			return 0
		case r.allPodsReady(entry):
			return r.Timing.Debounce
		}
	}
	return max(busy, r.Timing.StageDebounce)
}

// startingNode returns the entry of the pod's node if the node is starting, else nil.
func (r *Reconciler) startingNode(pod *corev1.Pod) *fleet.Entry {
	nodes := observe.IndexPodNode(pod)
	if len(nodes) == 0 {
		return nil
	}
	if entry := r.Fleet.Get(nodes[0]); entry != nil && entry.Starting() {
		return entry
	}
	return nil
}

// gatesLabels reports whether labels of the node are written only once this pod is ready.
func (r *Reconciler) gatesLabels(pod *corev1.Pod) bool {
	o, known := r.Catalogue.Find(operand.Name(pod.Labels[labels.Operand]))
	return known && o.IsInjector
}

// allPodsReady reports whether each operand that the node needs has a ready pod on it.
func (r *Reconciler) allPodsReady(entry *fleet.Entry) bool {
	if entry.Planned == nil {
		return true
	}
	pods, err := observe.PodsOnNode(context.Background(), r.Client, r.Namespace, entry.Facts.Name)
	if err != nil {
		return true
	}
	for _, onNode := range entry.Planned.NodePlan.Essential {
		if onNode.Expectation != plan.Expected {
			continue
		}
		pod := pods.Operands[onNode.Operand]
		if pod == nil || readiness.Pod(pod, "", r.Clock.Now()).State != readiness.Ready {
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
	return []reconcile.Request{requestFor(nodes[0])}
}

func requestFor(node string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: node}}
}

// allNodes returns requests for all nodes, for a new Basis.
func (r *Reconciler) allNodes() []reconcile.Request { return requestsFor(r.Fleet.Names()) }

// nodesWithOtherActions returns requests for the nodes whose health action has changed.
func (r *Reconciler) nodesWithOtherActions() []reconcile.Request {
	return requestsFor(r.Fleet.TakeHealthChanges())
}

// nodesWithOtherNeighbours returns requests for the nodes that have other neighbours.
func (r *Reconciler) nodesWithOtherNeighbours() []reconcile.Request {
	return requestsFor(r.Fleet.TakeNeighbourChanges())
}

func requestsFor(names []string) []reconcile.Request {
	requests := make([]reconcile.Request, 0, len(names))
	for _, name := range names {
		requests = append(requests, requestFor(name))
	}
	return requests
}

// reportShows reports whether the condition and the record of the node already show the assessment.
func reportShows(node *corev1.Node, assessment *assess.Assessment) bool {
	condition, wanted := assess.GPUReadyCondition(node), assessment.Condition(node.Name)
	if condition == nil || condition.Status != wanted.Status || condition.Reason != wanted.Reason ||
		!assessment.Record(assess.RecordOf(node)).IsOf(node) {
		return false
	}
	if assessment.DetailLasts {
		return condition.Message == wanted.Message
	}
	return assess.MessageUpToDate(condition.Message, assessment.Cause(node.Name), wanted.Message)
}
