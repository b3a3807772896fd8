package node

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/controller/requeue"
	"github.com/clusterpolicy/gpu-operator/internal/events"
	"github.com/clusterpolicy/gpu-operator/internal/freshness"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/metrics"
	"github.com/clusterpolicy/gpu-operator/internal/observe"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/status"
)

const (
	// workers look after nodes in parallel, so that a slow call for one holds up no other.
	workers = 8
	// retryStale is when a node is looked at again whose last write the cache does not show (its
	// event normally comes first), or that others were writing to.
	retryStale = time.Second
	// batch is how long a node whose pods change is left before it is looked at: while they come up, several
	// take a step each second, and none of these steps is written at once anyway.
	batch = 500 * time.Millisecond
	// batchPerNode comes on top for each node that is on its way, up to longestBatch in all.
	batchPerNode, longestBatch = 2 * time.Millisecond, 1500 * time.Millisecond
)

// Reconciler looks after the labels and the condition of nodes.
type Reconciler struct {
	// Client reads from the caches and writes.
	Client client.Client
	// Live reads without a cache.
	Live client.Reader
	// Catalogue is the sorted list of operands.
	Catalogue []operand.Operand
	// Namespace of the operator and the operands.
	Namespace string
	// DriverToolkit reads the images of OpenShift's driver toolkit.
	DriverToolkit *observe.DriverToolkit
	// Events tells of nodes that fail, and of those that no longer do.
	Events *events.Recorder
	// CreateFailures tells why DaemonSets lack pods.
	CreateFailures *observe.CreateFailures
	// References holds what operands need of others.
	References cache.Cache
	// Meter takes what Prometheus is told.
	Meter *metrics.Meter
	// Clock tells the time.
	Clock clock.PassiveClock

	planning planning
	seen     *freshness.Tracker
	pending  *settling
	calm     *calming
	// refused are the changes of taints that the API server has refused.
	refused *calming
}

// Reconcile brings one node's labels and condition up to date.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	node := &corev1.Node{}
	if err := r.Client.Get(ctx, request.NamespacedName, node); err != nil {
		r.seen.Forget(request.Name)
		r.pending.forget(request.Name)
		r.calm.forget(request.Name)
		r.Meter.Forget(request.Name)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if r.seen.Stale(node.Name, node.ResourceVersion) {
		return reconcile.Result{RequeueAfter: retryStale}, nil
	}
	if left := r.calm.left(node.Name); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	active, _, err := observe.Policies(ctx, r.Client)
	if err != nil {
		return reconcile.Result{}, err
	}
	facts := observe.Facts(node)
	switch {
	case active == nil && marked(node):
		wait, err := r.release(ctx, node, "")
		return r.again(node.Name, reconcile.Result{RequeueAfter: wait}, err)
	case active == nil || !facts.Managed():
		return reconcile.Result{}, nil
	}
	asked := r.planning.of(r.Catalogue, active)
	if *asked.spec.Paused {
		// A policy that is no longer paused is an event for every node.
		return reconcile.Result{}, nil
	}
	result, err := r.manage(ctx, node, facts, asked, later(node.CreationTimestamp, active.CreationTimestamp))
	return r.again(node.Name, result, err)
}

// marked tells whether the operator or its node discovery has written on the node for sure.
func marked(node *corev1.Node) bool {
	_, isDiscovered := node.Annotations[labels.Discovered]
	_, isTainted := node.Annotations[labels.StartupTaints]
	return isDiscovered || isTainted || wasManaged(node)
}

// wasManaged tells whether the operator has managed the node for sure. Labels such as
// nvidia.com/gpu.present may be an administrator's; without one of these marks they are.
func wasManaged(node *corev1.Node) bool {
	_, hasPool := node.Labels[labels.Pool]
	_, isLost := node.Annotations[labels.DiscoveryLostSince]
	return hasPool || isLost || status.GPUReadyCondition(node) != nil
}

func later(a, b metav1.Time) time.Time {
	if a.Before(&b) {
		return b.Time
	}
	return a.Time
}

// manage writes the labels of a GPU node and then its condition. since is when node and policy have both been
// there.
func (r *Reconciler) manage(ctx context.Context, node *corev1.Node, facts operand.NodeFacts, asked *asked, since time.Time) (reconcile.Result, error) {
	input, err := r.input(ctx, asked, facts)
	if err != nil {
		return reconcile.Result{}, err
	}
	planned := r.planning.planned(r.Catalogue, asked, input)
	found := r.discovery(ctx, node, facts, asked.spec, planned.Missing(r.Catalogue, facts) != "")
	if found.gone {
		wait, err := r.release(ctx, node, labels.False)
		return reconcile.Result{RequeueAfter: wait}, err
	}
	wait := found.wait
	facts.StayedAway = found.stayedAway
	pods, err := observe.PodsOnNode(ctx, r.Client, r.Namespace, node.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	now := r.Clock.Now()
	changes := planned.NodeLabels(r.Catalogue, facts, node.Labels, r.hasDriver(pods, now))
	if err := r.patchMetadata(ctx, node, changes, found.notes); err != nil {
		return reconcile.Result{}, err
	}
	daemonSets, err := observe.DaemonSets(ctx, r.Client, r.Namespace)
	if err != nil {
		return reconcile.Result{}, err
	}
	stack := status.Stack{DaemonSets: daemonSets, CreateFailures: r.CreateFailures.Found()}
	nodePlan := planned.ForNode(r.Catalogue, facts)
	assessment := status.AssessNode(nodePlan, node, pods, stack, now)
	taints := len(node.Spec.Taints)
	retry, err := r.startup(ctx, node, *asked.spec.NodeStartup, assessment)
	if err != nil {
		return reconcile.Result{}, err
	}
	if len(node.Spec.Taints) != taints {
		assessment = status.AssessNode(nodePlan, node, pods, stack, now)
	}
	wait = requeue.Sooner(wait, retry)
	r.Meter.Climb(node.Name, status.GPUReadyCondition(node) == nil, since, assessment.Stage, assessment.State == readiness.Ready)
	settle, err := r.writeCondition(ctx, node, assessment)
	wait = requeue.Sooner(wait, settle)
	if !assessment.Until.IsZero() {
		wait = requeue.Sooner(wait, assessment.Until.Sub(now))
	}
	return reconcile.Result{RequeueAfter: wait}, err
}

// hasDriver tells whether a pod does its work on the node whose replacement disturbs GPU work. One
// that never came up protects nothing.
func (r *Reconciler) hasDriver(pods observe.NodePods, now time.Time) bool {
	for _, o := range r.Catalogue {
		if pod := pods[o.Name]; o.UpdatesOnDelete && pod != nil && readiness.Pod(pod, "", now).State == readiness.Ready {
			return true
		}
	}
	return false
}

// again looks once more at a node that has changed since it was read. Its event may not come: a
// change that is trimmed from the cache starts nothing. Nor is it tried at once: a node that joins is
// written by several at the same time. A node that is gone is done with.
func (r *Reconciler) again(node string, result reconcile.Result, err error) (reconcile.Result, error) {
	if apierrors.IsConflict(err) {
		r.calm.start(node, retryStale)
		return reconcile.Result{RequeueAfter: retryStale}, nil
	}
	return result, client.IgnoreNotFound(err)
}

// SetupWithManager registers the controller, its watches and the index of pods by node.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	r.seen, r.pending = freshness.NewTracker(), newSettling(r.Clock)
	r.calm, r.refused = newCalming(r.Clock), newCalming(r.Clock)
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, observe.PodNodeField, observe.TargetNode); err != nil {
		return err
	}
	b := ctrl.NewControllerManagedBy(mgr).Named("node").
		For(&corev1.Node{}, builder.WithPredicates(observe.NodeChanges(r.Client, r.Catalogue))).
		Watches(&corev1.Pod{}, requeue.After(r.batch, nodeOfPod), builder.WithPredicates(observe.PodChanges())).
		Watches(&v1.ClusterPolicy{}, handler.EnqueueRequestsFromMapFunc(r.everyNode), builder.WithPredicates(observe.PolicyChanges())).
		Watches(&appsv1.DaemonSet{}, handler.EnqueueRequestsFromMapFunc(r.everyNode), builder.WithPredicates(observe.TemplateChanges())).
		WatchesRawSource(source.Channel(r.DriverToolkit.Events(), handler.EnqueueRequestsFromMapFunc(r.everyNode))).
		WatchesRawSource(source.Channel(r.CreateFailures.Events(), handler.EnqueueRequestsFromMapFunc(r.everyNode))).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers})
	for _, kind := range observe.ReferenceKinds() {
		b = b.WatchesRawSource(source.Kind(r.References, kind, handler.EnqueueRequestsFromMapFunc(r.nodesThatUse), observe.ContentChanges()))
	}
	return b.Complete(r)
}

// batch is how long a node whose pods change is left now.
func (r *Reconciler) batch() time.Duration {
	return min(batch+time.Duration(r.pending.onTheirWay())*batchPerNode, longestBatch)
}

// nodesThatUse are all nodes, if the policy names the object.
func (r *Reconciler) nodesThatUse(ctx context.Context, object client.Object) []reconcile.Request {
	active, _, err := observe.Policies(ctx, r.Client)
	if err != nil {
		log.FromContext(ctx).Error(err, "Reading policies")
		return nil
	}
	if active == nil || !observe.IsReference(object, r.planning.of(r.Catalogue, active).uses) {
		return nil
	}
	return r.everyNode(ctx, object)
}

func nodeOfPod(pod client.Object) []reconcile.Request {
	nodes := observe.TargetNode(pod)
	if len(nodes) == 0 {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: nodes[0]}}}
}

// everyNode is for what concerns all nodes: another spec, another template.
func (r *Reconciler) everyNode(ctx context.Context, _ client.Object) []reconcile.Request {
	nodes := &corev1.NodeList{}
	if err := r.Client.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Listing nodes")
		return nil
	}
	var requests []reconcile.Request
	for i := range nodes.Items {
		// A node that was given up, or only discovered, has labels still, to be taken off with the policy.
		_, labelled := nodes.Items[i].Labels[labels.GPUPresent]
		if labelled || marked(&nodes.Items[i]) || observe.Facts(&nodes.Items[i]).Managed() {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: nodes.Items[i].Name}})
		}
	}
	return requests
}
