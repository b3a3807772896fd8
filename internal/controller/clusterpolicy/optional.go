package clusterpolicy

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/clusterpolicy/gpu-operator/config/crd"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/render"
)

// optionalKinds watches the kinds that other projects bring, as long as they are there. Only the pass
// uses it, and passes do not overlap.
type optionalKinds struct {
	cache      cache.Cache
	mapper     meta.RESTMapper
	controller controller.Controller
	watched    map[operand.OptionalKind]bool
}

// available tells which of the kinds can be used, by the definitions that the cluster has. One that has
// come is watched from now on, and one that has gone no longer.
func (o *optionalKinds) available(ctx context.Context, definitions map[string]bool) (map[operand.OptionalKind]bool, error) {
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

// served tells whether the API server serves the kind already: it does so a moment after its definition
// is there, which is an event of the definition too.
func (o *optionalKinds) served(optional render.OptionalKind, definitions map[string]bool) (bool, error) {
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

func (o *optionalKinds) watch(ctx context.Context, optional render.OptionalKind, served bool) error {
	switch {
	case served && !o.watched[optional.Kind]:
		log.FromContext(ctx).Info("The cluster has an optional kind", "kind", optional.Kind)
		if err := o.controller.Watch(source.Kind[client.Object](o.cache, optional.Object, afterBatch())); err != nil {
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

// definitionInUse lets pass the events of the definitions that bring optional kinds, and of the policy's
// own.
func definitionInUse() predicate.Predicate {
	wanted := map[string]bool{crd.Name: true}
	for _, optional := range render.OptionalKinds() {
		wanted[optional.CRD] = true
	}
	return predicate.NewPredicateFuncs(func(object client.Object) bool { return wanted[object.GetName()] })
}
