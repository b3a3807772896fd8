package apply

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// SetFinalizer adds the finalizer labels.RemovalFinalizer to the owner of the stack, or removes it, by one patch. It
// fails with a conflict if the owner has changed since it was read, and writes nothing if the finalizer is as desired.
// The owner is updated to the answer, so it must not be an object of a cache.
func (a *Applier) SetFinalizer(ctx context.Context, owner client.Object, present bool) error {
	return a.setFinalizer(ctx, owner, labels.RemovalFinalizer, present)
}

func (a *Applier) setFinalizer(ctx context.Context, owner client.Object, finalizer string, present bool) error {
	before, isObject := owner.DeepCopyObject().(client.Object)
	if !isObject {
		return fmt.Errorf("%T is not an API object", owner)
	}
	change, what := controllerutil.RemoveFinalizer, "removing"
	if present {
		change, what = controllerutil.AddFinalizer, "adding"
	}
	if !change(owner, finalizer) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	return a.request(ctx, fmt.Sprintf("%s the finalizer of %s", what, owner.GetName()),
		func(ctx context.Context) error {
			return a.client.Patch(ctx, owner, patch, client.FieldOwner(labels.FieldOwner))
		})
}

// Delete deletes an object that no step renders; it may be gone already.
func (a *Applier) Delete(ctx context.Context, object client.Object) error {
	deletion := a.enqueue(ctx, object, "deleting "+describe(object), func(ctx context.Context, c *call) outcome {
		return a.deleteObject(ctx, c, object)
	})
	return a.await(ctx, []*call{deletion})[0].Err
}
