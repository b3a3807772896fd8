package clusterpolicy

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
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
	"github.com/clusterpolicy/gpu-operator/internal/cluster/cachefilter"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/kube/requeue"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
	"github.com/clusterpolicy/gpu-operator/internal/stack/apply"
	"github.com/clusterpolicy/gpu-operator/internal/status/metrics"
	"github.com/clusterpolicy/gpu-operator/internal/status/statuswriter"
	"github.com/clusterpolicy/gpu-operator/internal/takeover/otheroperator"
)

// clusterRequest is the only key of the work queue: a pass reconciles the whole cluster, whatever the event.
var clusterRequest = reconcile.Request{NamespacedName: types.NamespacedName{Name: "cluster"}}

// Options are the dependencies of a Reconciler.
type Options struct {
	// Client reads from the caches and writes. Live reads from the API server.
	Client client.Client
	Live   client.Reader
	// Applier writes the objects of the stack.
	Applier *apply.Applier
	// Status writes the status of policies.
	Status *statuswriter.Writer
	// Fleet has the entries of the nodes. Each pass publishes its basis there.
	Fleet *fleet.Fleet
	// Catalogue lists the operands in order.
	Catalogue operand.Catalogue
	// Namespace is that of the operator and the operands.
	Namespace string
	// OperatorImage is the image of the manager, which also has gpu-node.
	OperatorImage string
	// Proxy of the operator's own environment.
	Proxy v1.ProxySpec
	// Metrics is the endpoint of the manager's metrics.
	Metrics operand.MetricsEndpoint
	// Images replace default images of operands.
	Images image.Overrides
	// Ignored has a sentence for each variable of the operator that should replace an image and does not.
	Ignored []string
	// ServerVersion has a sentence if this release is not tested with the cluster's version of Kubernetes; nil for none.
	ServerVersion *observe.Note
	// DriverToolkit reads the images of OpenShift's driver toolkit.
	DriverToolkit *observe.DriverToolkit
	// OpenShift reads the proxy and the version of OpenShift.
	OpenShift *observe.OpenShift
	// CreateFailures finds the reasons why pods of DaemonSets are missing.
	CreateFailures *observe.CreateFailures
	// StartFailures finds the reasons why pods of DaemonSets do not start.
	StartFailures *observe.StartFailures
	// References caches the objects that a spec refers to, such as ConfigMaps.
	References cache.Cache
	// Schema compares the ClusterPolicy CRD of the cluster with that of this release.
	Schema *observe.Schema
	// DriverSchema is the same for NVIDIADriver.
	DriverSchema *observe.Schema
	// OptionalKinds watches kinds whose CRDs other projects install.
	OptionalKinds *OptionalKinds
	// NVIDIADrivers reads the NVIDIADriver objects.
	NVIDIADrivers *observe.NVIDIADrivers
	// DriverStatus writes their status.
	DriverStatus *statuswriter.DriverWriter
	// OtherOperator detects NVIDIA's operator, beside which nothing is written; nil not to wait for its end.
	OtherOperator *otheroperator.Watcher
	// Meter takes the numbers for Prometheus.
	Meter  *metrics.Meter
	Clock  clock.PassiveClock
	Timing Timing
}

// Reconciler makes the cluster follow the active policy.
type Reconciler struct {
	Options
	caches        caches
	schemaGuard   schemaGuard
	monitoring    *observe.Note
	deletedPolicy deletedPolicy
	// leftPruned: nothing is left of NVIDIA's operator that is to be deleted. If it is lost, ConfigMaps are listed once.
	leftPruned bool
	// driversTakenOver: no driver of NVIDIA's operator is left. If it is lost, DaemonSets and pods of drivers are listed
	// once.
	driversTakenOver bool
	// addedFinalizer is the last finalizer that was added, until the cache shows it.
	addedFinalizer addedFinalizer
	// undecodableEvents has the generations of objects that cannot be decoded and have an Event. If it is lost, the Events
	// are sent once more, and exist already.
	undecodableEvents map[types.UID]int64
	// otherOperator identifies the last report that NVIDIA's operator is at work; empty while it is not.
	otherOperator string
	// failedReads is why optional reads failed, as it was logged, by the message of the log.
	failedReads map[string]string
	// nodes is the number of nodes in the last pass.
	nodes atomic.Int64
}

// New returns a Reconciler.
func New(options Options) *Reconciler {
	return &Reconciler{
		Options: options, undecodableEvents: map[types.UID]int64{}, failedReads: map[string]string{},
		monitoring: observe.NewMonitoring(options.Live, options.Namespace, options.Clock),
	}
}

// Reconcile runs one pass.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	return r.newScope().run(ctx)
}

// run makes a pass. close writes the status on every path, also after a failure.
func (s *scope) run(ctx context.Context) (result reconcile.Result, err error) {
	defer func() { result, err = s.close(ctx) }()
	s.runPhases(ctx)
	return
}

// runPhases runs the phases of a pass but for its status: read, gate, decide, plan, render, publish, apply; or for a
// deleted policy read, gate, remove. The gates are before the fleet has all nodes, beside NVIDIA's operator, without a
// policy, and for a policy that may not exist. The basis is published after the reads of render, which would otherwise
// wait behind the writes of all nodes.
func (s *scope) runPhases(ctx context.Context) {
	if s.readPolicies(ctx); s.err != nil {
		return
	}
	s.notePolicies(ctx)
	if s.view = s.Fleet.View(); !s.view.Hydrated {
		// The fleet triggers a pass when it is hydrated.
		return
	}
	s.nodes.Store(int64(len(s.view.Nodes)))
	// Also without a policy: the first read of the CRD is slow, and should not delay a new policy.
	s.compareSchema(ctx)
	if s.yieldToOther(ctx); s.frozen {
		return
	}
	switch {
	case s.policy == nil:
		s.releaseCluster(ctx)
	case s.deletedFor() > 0:
		s.staleCache = true
		s.requeueAfter(s.deletedFor())
	case s.removing:
		s.remove(ctx)
	case s.decideOrFreeze(ctx):
		s.plan()
		s.render(ctx)
		s.publish(ctx)
		s.apply(ctx)
	}
}

// SetupWithManager registers the controller and its watches.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	b := ctrl.NewControllerManagedBy(mgr).Named("clusterpolicy").
		Watches(&v1.ClusterPolicy{}, enqueueAfter(func() time.Duration { return 0 }),
			builder.WithPredicates(cachefilter.PolicyChanges())).
		Watches(&v1.ClusterPolicy{}, r.debounced(),
			builder.WithPredicates(cachefilter.PolicyReverts(r.Status.Wrote))).
		WatchesRawSource(source.Channel(r.Fleet.Changed(), r.debounced())).
		WatchesRawSource(source.Channel(r.Applier.Events(), r.debounced())).
		WatchesRawSource(source.Channel(r.DriverToolkit.Events(), r.debounced())).
		WatchesRawSource(source.Channel(r.OpenShift.Events(), r.debounced())).
		WatchesRawSource(source.Channel(r.OptionalKinds.Events(), r.debounced())).
		WatchesRawSource(source.Channel(r.NVIDIADrivers.Events(), r.debounced())).
		Watches(observe.CRDMetadata(), r.debounced(), builder.WithPredicates(relevantCRDs()))
	if r.OtherOperator != nil {
		b = b.WatchesRawSource(source.Channel(r.OtherOperator.Events(), r.debounced()))
	}
	for _, kind := range manifest.Kinds() {
		b = b.Watches(kind, r.debounced())
	}
	for _, kind := range observe.ReferenceKinds() {
		b = b.WatchesRawSource(source.Kind(r.References, kind, r.debounced(), observe.ContentChanges()))
	}
	return b.WithOptions(controller.Options{RateLimiter: r.Timing.rateLimiter()}).Complete(r)
}

// debounced enqueues a pass for any event, after the debounce time.
func (r *Reconciler) debounced() handler.EventHandler {
	return enqueueAfter(func() time.Duration { return r.Timing.debounce(int(r.nodes.Load())) })
}

func enqueueAfter(delay func() time.Duration) handler.EventHandler {
	return requeue.EnqueueAfter(func(client.Object) time.Duration { return delay() },
		func(client.Object) []reconcile.Request { return []reconcile.Request{clusterRequest} })
}
