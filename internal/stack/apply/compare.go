package apply

import (
	"context"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/kube/drift"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// Compare returns the first field in which a live object differs from the rendered one: nil if ApplyAll would not write
// it, and an empty path if live is nil. It returns the errors that ApplyAll returns before a write. Both objects are of
// the same type.
func Compare(owner types.UID, rendered, live client.Object) (drift.Path, error) {
	w, err := newWrite(owner, rendered)
	if err != nil {
		return nil, err
	}
	return compare(owner, w, live)
}

// compare returns the first field in which the live object differs from the intent (see drift.First), nil if there is
// none, and an empty path if there is no live object.
func compare(owner types.UID, w write, live client.Object) (drift.Path, error) {
	switch {
	case live == nil:
		return drift.Path{}, nil
	case isProvided(owner, w.rendered, live):
		return nil, nil
	}
	if err := checkOwner(owner, live); err != nil {
		return nil, fmt.Errorf("%s %w", describe(w.rendered), err)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
	if err != nil {
		return nil, fmt.Errorf("converting live %s: %w", describe(w.rendered), err)
	}
	return drift.First(w.intent, content), nil
}

// read returns the live object of a rendered one, or nil if it does not exist. Objects from a cache must not be
// changed.
func read(ctx context.Context, reader client.Reader, rendered client.Object) (client.Object, error) {
	object, isObject := reflect.New(reflect.TypeOf(rendered).Elem()).Interface().(client.Object)
	if !isObject {
		return nil, fmt.Errorf("%T is not an API object", rendered)
	}
	err := reader.Get(ctx, client.ObjectKeyFromObject(rendered), object, client.UnsafeDisableDeepCopy)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // No object and no error: it does not exist.
	case err != nil:
		return nil, err
	}
	// Reads from the API server leave the TypeMeta empty.
	object.GetObjectKind().SetGroupVersionKind(rendered.GetObjectKind().GroupVersionKind())
	return object, nil
}

// checkOwner returns an error if the operator must not write the live object.
func checkOwner(owner types.UID, live client.Object) error {
	controller := metav1.GetControllerOf(live)
	switch {
	case controller != nil && controller.UID == owner:
		return nil
	case controller == nil && labels.IsApplied(live):
		// Its policy was deleted with --cascade=orphan, to be re-created without unloading drivers.
		return nil
	case controller != nil && labels.IsApplied(live):
		return errTerminating
	default:
		return fmt.Errorf("exists and %w: delete it, or uninstall what created it", ErrConflict)
	}
}
