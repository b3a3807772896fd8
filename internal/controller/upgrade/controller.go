package upgrade

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/cachefilter"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/kube/events"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// workers is the number of nodes that are read or changed at a time, so that a slow call for one does not delay others.
const workers = 8

// Options configure a Reconciler.
type Options struct {
	// Client reads from the caches and writes; Live reads from the API server.
	Client client.Client
	Live   client.Reader
	// Catalogue is the sorted list of operands.
	Catalogue operand.Catalogue
	// Namespace is that of the operator and the operands.
	Namespace string
	// Fleet has the Basis and the assessments of the nodes. Each pass publishes its report there.
	Fleet *fleet.Fleet
	// Events records transitions of nodes.
	Events *events.Recorder
	Clock  clock.PassiveClock
	Timing Timing
}

// Reconciler upgrades the drivers of all nodes.
type Reconciler struct {
	Options
	memory memory
}

// New returns a Reconciler.
func New(options Options) *Reconciler { return &Reconciler{Options: options, memory: newMemory()} }

// Reconcile runs one pass, unless all nodes are at rest. Of those that are, nothing is read, however many there are.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	if done, atRest := r.atRest(); atRest {
		r.memory.prune(nil, nil, r.exists)
		r.Fleet.SetUpgrades(&upgrade.Report{Nodes: map[string]upgrade.Progress{}, Done: done})
		return reconcile.Result{}, nil
	}
	return r.newScope().run(ctx)
}

// atRest reports whether there is nothing to plan for any node, and of how many nodes the driver is up to date then. It
// does not say so while there may be slots, which end with a pass.
func (r *Reconciler) atRest() (done int, atRest bool) {
	basis := r.Fleet.Basis()
	done, atRest = r.Fleet.UpgradesAtRest()
	return done, atRest && basis != nil && basis.Decisions != nil && !r.memory.mayHaveSlots
}

// exists reports whether the node has an entry.
func (r *Reconciler) exists(node string) bool { return r.Fleet.Get(node) != nil }

// run is a pass: read, hold, plan, grant slots, carry out the steps, publish the report.
func (s *scope) run(ctx context.Context) (reconcile.Result, error) {
	if !s.IsDue(s.view.Hydrated, s.view.Active) {
		return s.Result(s.planned.Until)
	}
	if err := s.refreshCluster(ctx); err != nil {
		return reconcile.Result{}, err
	}
	s.plan()
	if !s.Basis.Paused() {
		if err := s.writeSlots(ctx); err != nil {
			return s.endWithoutSlots(err)
		}
		s.carryOut(ctx)
		s.recordBlocked(ctx)
	}
	s.publish()
	return s.Result(s.planned.Until)
}

// SetupWithManager registers the controller and its watches. The index of pods by node is that of the client, or else
// the node controller registers it.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	debounced := r.Timing.Debounced(r.Fleet)
	return ctrl.NewControllerManagedBy(mgr).Named("upgrade").
		Watches(&corev1.Node{}, debounced, builder.WithPredicates(cachefilter.UpgradeNodeChanges())).
		Watches(&corev1.Pod{}, debounced, builder.WithPredicates(cachefilter.UpgradePodChanges(r.concerns()))).
		Watches(&corev1.ConfigMap{}, debounced, builder.WithPredicates(cachefilter.SlotsDeleted())).
		WatchesRawSource(source.Channel(r.Fleet.Assessed(), debounced)).
		WithOptions(r.Timing.Options()).Complete(r)
}

// concerns returns a function that reports whether a plan depends on the pods of the operand: those of the driver, and
// of all that need it on their node. The latter are deleted after the driver was replaced, and a node waits until they
// are newer than the driver; without their events it would wait for another event.
func (r *Reconciler) concerns() func(name string) bool {
	dependants := r.Catalogue.NodeDependants(func(o *operand.Operand) bool { return o.UpdatesOnDelete })
	return func(name string) bool {
		o, known := r.Catalogue.Find(operand.Name(name))
		return known && (o.UpdatesOnDelete || o.Stage == v1.StageValidated || dependants[o.Name])
	}
}
