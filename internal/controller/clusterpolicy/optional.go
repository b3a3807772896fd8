package clusterpolicy

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/clusterpolicy/gpu-operator/config/crd"
	"github.com/clusterpolicy/gpu-operator/internal/kube/notify"
	"github.com/clusterpolicy/gpu-operator/internal/kube/optional"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
)

// OptionalKinds watches kinds of other projects, such as ServiceMonitor, while the cluster has their CRDs.
type OptionalKinds struct {
	watches []optionalWatch
	changed notify.Signal
}

type optionalWatch struct {
	manifest.OptionalKind
	*optional.Watch
}

// NewOptionalKinds returns an OptionalKinds without watches; Follow starts them.
func NewOptionalKinds(c cache.Cache, mapper meta.RESTMapper, clk clock.Clock) *OptionalKinds {
	o := &OptionalKinds{changed: notify.New()}
	for _, kind := range manifest.OptionalKinds() {
		o.watches = append(o.watches, optionalWatch{kind, optional.New(optional.Options{
			Object: kind.Object, Cache: c, Mapper: mapper, Clock: clk, Changed: o.changed,
		})})
	}
	return o
}

// Events returns the channel, for one receiver, of changes of these kinds' objects and of what Follow returns.
func (o *OptionalKinds) Events() <-chan event.GenericEvent { return o.changed.Events() }

// Start implements manager.Runnable.
func (o *OptionalKinds) Start(ctx context.Context) error {
	var running sync.WaitGroup
	for _, kind := range o.watches {
		running.Go(func() { _ = kind.Start(ctx) })
	}
	running.Wait()
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: only the leader runs passes.
func (o *OptionalKinds) NeedLeaderElection() bool { return true }

// Follow starts and stops watches so that exactly the kinds with a CRD in crds are watched, and returns those
// that the API server serves. It serves a kind a moment after the CRD is created.
//
// While discovery has no answer for one of the kinds, Follow returns none of them: objects of these kinds are not
// pruned then, and an object of one kind may depend on another kind.
func (o *OptionalKinds) Follow(
	ctx context.Context, crds map[string]bool,
) (map[operand.OptionalKind]bool, error) {
	for _, kind := range o.watches {
		if crds[kind.CRD] {
			kind.StartDiscovery()
		}
	}
	available, complete := map[operand.OptionalKind]bool{}, true
	for _, kind := range o.watches {
		state, err := kind.follow(ctx, crds[kind.CRD])
		if err != nil {
			return nil, fmt.Errorf("watching %s objects: %w", kind.Kind, err)
		}
		complete = complete && state != optional.Unknown
		if state == optional.Served {
			available[kind.Kind] = true
		}
	}
	if !complete {
		clear(available)
	}
	return available, nil
}

func (w optionalWatch) follow(ctx context.Context, defined bool) (optional.State, error) {
	if !defined {
		return optional.Absent, w.StopWatch(ctx)
	}
	return w.Watch.EnsureWatch(ctx)
}

// managedKinds returns the kinds that the pass applies and prunes.
func managedKinds(available map[operand.OptionalKind]bool) []client.Object {
	var result []client.Object
	for _, kind := range manifest.Kinds() {
		result = append(result, kind)
	}
	for _, kind := range manifest.OptionalKinds() {
		if available[kind.Kind] {
			result = append(result, kind.Object)
		}
	}
	return result
}

// relevantCRDs selects the CRDs of the optional kinds, of OpenShift's configuration, of NVIDIADriver and of
// ClusterPolicy.
func relevantCRDs() predicate.Predicate {
	wanted := map[string]bool{
		crd.Name: true, crd.NVIDIADriverName: true, labels.ProxyDefinition: true, labels.ClusterVersionDefinition: true,
	}
	for _, kind := range manifest.OptionalKinds() {
		wanted[kind.CRD] = true
	}
	return predicate.NewPredicateFuncs(func(object client.Object) bool { return wanted[object.GetName()] })
}
