package apply

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// Rendered is what a pass has rendered. Prune deletes everything else.
type Rendered struct {
	objects map[string]bool
	// Kept are the operands whose objects all stay.
	Kept map[string]bool
}

// Add adds an object, which Prune keeps.
func (r *Rendered) Add(object client.Object) {
	if r.objects == nil {
		r.objects = map[string]bool{}
	}
	r.objects[key(object)] = true
}

// Prune deletes the objects of these kinds that have an operand's label, are controlled by the policy with this UID,
// and are not rendered. Call it last in a pass, and not at all if the pass could not render everything. Like ApplyAll
// it waits at most RoundTimeout; ErrInFlight in its error means that deletions continue in the background.
func (a *Applier) Prune(ctx context.Context, owner types.UID, kinds []client.Object, rendered Rendered) error {
	a.table.sweep()
	waitCtx, cancel := context.WithTimeout(ctx, a.timing.RoundTimeout)
	defer cancel()
	var failures []error
	var calls []*call
	for _, kind := range kinds {
		objects, err := a.list(waitCtx, kind)
		if err != nil {
			failures = append(failures, err)
			continue
		}
		for _, object := range objects {
			if !rendered.Prunes(owner, object) {
				continue
			}
			work := func(ctx context.Context, c *call) outcome { return a.deleteObject(ctx, c, object) }
			calls = append(calls, a.enqueue(ctx, object, "deleting "+describe(object), work))
		}
	}
	for _, result := range a.await(waitCtx, calls) {
		failures = append(failures, result.Err)
	}
	return errors.Join(failures...)
}

// deleteObject deletes an object, unless an earlier deletion is in back-off.
func (a *Applier) deleteObject(ctx context.Context, c *call, object client.Object) outcome {
	uid := object.GetUID()
	attempt := "delete " + string(uid)
	if recorded := a.table.recordedAnswer(object, attempt); recorded != nil {
		return outcome{Result: Result{Err: recorded.err}, recorded: true}
	}
	if a.table.startAttempt(c, attempt) == nil {
		log.FromContext(ctx).Info("Deleting object", "object", describe(object))
	}
	err := a.request(ctx, "deleting "+describe(object), func(ctx context.Context) error {
		return a.client.Delete(
			ctx, object, client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground),
		)
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return outcome{Result: Result{Err: err}, attempt: attempt, failed: true}
	}
	return outcome{deleted: true}
}

// Prunes reports whether Prune deletes the object, which has its kind set, for the policy with this UID.
func (r *Rendered) Prunes(owner types.UID, object client.Object) bool {
	name := object.GetLabels()[labels.Operand]
	controller := metav1.GetControllerOf(object)
	return name != "" && !r.Kept[name] && !r.objects[key(object)] &&
		controller != nil && controller.UID == owner && object.GetDeletionTimestamp() == nil
}

// list returns all cached objects of the kind.
func (a *Applier) list(ctx context.Context, kind client.Object) ([]client.Object, error) {
	gvk := kind.GetObjectKind().GroupVersionKind()
	listType, err := a.client.Scheme().New(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	if err != nil {
		return nil, fmt.Errorf("kind %s has no list type: %w", gvk.Kind, err)
	}
	list, isList := listType.(client.ObjectList)
	if !isList {
		return nil, fmt.Errorf("%T is not a list", listType)
	}
	if err := a.client.List(ctx, list, client.HasLabels{labels.Operand}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing %s objects: %w", gvk.Kind, err)
	}
	var objects []client.Object
	err = meta.EachListItem(list, func(item runtime.Object) error {
		if object, isObject := item.(client.Object); isObject {
			object.GetObjectKind().SetGroupVersionKind(gvk)
			objects = append(objects, object)
		}
		return nil
	})
	return objects, err
}
