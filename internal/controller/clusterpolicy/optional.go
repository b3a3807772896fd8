package clusterpolicy

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/clusterpolicy/gpu-operator/config/crd"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/render"
)

// OptionalKinds watches the kinds that other projects define, as long as the cluster has them. Only the pass uses it, and
// passes do not overlap.
type OptionalKinds struct {
	cache   cache.Cache
	mapper  meta.RESTMapper
	changed chan event.GenericEvent
	watched map[operand.OptionalKind]bool
}

// NewOptionalKinds returns one that watches nothing yet.
func NewOptionalKinds(c cache.Cache, mapper meta.RESTMapper) *OptionalKinds {
	// One event that is not taken yet stands for all that follow.
	return &OptionalKinds{cache: c, mapper: mapper, changed: make(chan event.GenericEvent, 1), watched: map[operand.OptionalKind]bool{}}
}

// Events has an event when an object of these kinds has changed, for one receiver.
func (o *OptionalKinds) Events() <-chan event.GenericEvent { return o.changed }

// Follow watches the kinds that can be used, by the definitions that the cluster has, and no other, and returns them.
func (o *OptionalKinds) Follow(ctx context.Context, definitions map[string]bool) (map[operand.OptionalKind]bool, error) {
	available := map[operand.OptionalKind]bool{}
	for _, optional := range render.OptionalKinds() {
		served, err := o.served(optional, definitions)
		if err != nil {
			return nil, err
		}
		if err := o.watch(ctx, optional, served); err != nil {
			return nil, fmt.Errorf("watching %s objects: %w", optional.Kind, err)
		}
		if served {
			available[optional.Kind] = true
		}
	}
	return available, nil
}

// served reports whether the API server serves the kind already: it does so a moment after its definition
// is there, which is an event of the definition too.
func (o *OptionalKinds) served(optional render.OptionalKind, definitions map[string]bool) (bool, error) {
	if !definitions[optional.CRD] {
		return false, nil
	}
	kind := optional.Object.GetObjectKind().GroupVersionKind()
	_, err := o.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		return false, nil
	}
	return err == nil, err
}

func (o *OptionalKinds) watch(ctx context.Context, optional render.OptionalKind, served bool) error {
	switch {
	case served && !o.watched[optional.Kind]:
		log.FromContext(ctx).Info("The cluster has an optional kind", "kind", optional.Kind)
		informer, err := o.cache.GetInformer(ctx, optional.Object, cache.BlockUntilSynced(false))
		if err != nil {
			return err
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { o.notify() },
			UpdateFunc: func(_, _ any) { o.notify() },
			DeleteFunc: func(any) { o.notify() },
		}); err != nil {
			return err
		}
	case !served && o.watched[optional.Kind]:
		log.FromContext(ctx).Info("The cluster no longer has an optional kind", "kind", optional.Kind)
		if err := o.cache.RemoveInformer(ctx, optional.Object); err != nil {
			return err
		}
	}
	o.watched[optional.Kind] = served
	return nil
}

func (o *OptionalKinds) notify() {
	select {
	case o.changed <- event.GenericEvent{Object: &corev1.Node{}}:
	default:
	}
}

// kinds are those that are applied and pruned.
func kinds(available map[operand.OptionalKind]bool) []client.Object {
	var result []client.Object
	for _, kind := range render.Kinds() {
		result = append(result, kind)
	}
	for _, optional := range render.OptionalKinds() {
		if available[optional.Kind] {
			result = append(result, optional.Object)
		}
	}
	return result
}

// definitionInUse lets pass the events of the definitions of optional kinds, and of the policy's own.
func definitionInUse() predicate.Predicate {
	wanted := map[string]bool{crd.Name: true}
	for _, optional := range render.OptionalKinds() {
		wanted[optional.CRD] = true
	}
	return predicate.NewPredicateFuncs(func(object client.Object) bool { return wanted[object.GetName()] })
}
