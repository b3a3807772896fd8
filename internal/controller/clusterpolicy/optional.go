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
	"github.com/clusterpolicy/gpu-operator/internal/notify"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/optional"
	"github.com/clusterpolicy/gpu-operator/internal/render"
)

// OptionalKinds watches the kinds that other projects define, while the cluster has their definitions. A manager runs
// its Start.
type OptionalKinds struct {
	watches []optionalWatch
	changed notify.Signal
}

type optionalWatch struct {
	render.OptionalKind
	*optional.Watch
}

// NewOptionalKinds returns one that watches nothing yet.
func NewOptionalKinds(c cache.Cache, mapper meta.RESTMapper, clk clock.Clock) *OptionalKinds {
	o := &OptionalKinds{changed: notify.New()}
	for _, kind := range render.OptionalKinds() {
		o.watches = append(o.watches, optionalWatch{kind, optional.New(optional.Options{
			Object: kind.Object, Cache: c, Mapper: mapper, Clock: clk, Changed: o.changed,
		})})
	}
	return o
}

// Events has an event when Follow may have another answer, or an object of these kinds has changed, for one receiver.
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

// NeedLeaderElection implements manager.LeaderElectionRunnable: passes are those of a leader.
func (o *OptionalKinds) NeedLeaderElection() bool { return true }

// Follow watches the kinds that can be used, by the definitions that the cluster has, and no other, and returns them.
// The API server serves a kind a moment after its definition exists.
//
// As long as it is not known of one of them whether it is served, it returns none: nothing is pruned then, and an
// object of one kind may depend on another kind.
func (o *OptionalKinds) Follow(
	ctx context.Context, definitions map[string]bool,
) (map[operand.OptionalKind]bool, error) {
	for _, kind := range o.watches {
		if definitions[kind.CRD] {
			kind.StartDiscovery()
		}
	}
	available, known := map[operand.OptionalKind]bool{}, true
	for _, kind := range o.watches {
		state, err := kind.follow(ctx, definitions[kind.CRD])
		if err != nil {
			return nil, fmt.Errorf("watching %s objects: %w", kind.Kind, err)
		}
		known = known && state != optional.Unknown
		if state == optional.Served {
			available[kind.Kind] = true
		}
	}
	if !known {
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

// kinds are those that are applied and pruned.
func kinds(available map[operand.OptionalKind]bool) []client.Object {
	var result []client.Object
	for _, kind := range render.Kinds() {
		result = append(result, kind)
	}
	for _, kind := range render.OptionalKinds() {
		if available[kind.Kind] {
			result = append(result, kind.Object)
		}
	}
	return result
}

// definitionInUse lets pass the events of the definitions of optional kinds, and of the policy's own.
func definitionInUse() predicate.Predicate {
	wanted := map[string]bool{crd.Name: true}
	for _, kind := range render.OptionalKinds() {
		wanted[kind.CRD] = true
	}
	return predicate.NewPredicateFuncs(func(object client.Object) bool { return wanted[object.GetName()] })
}
