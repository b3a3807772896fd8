package apply

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterpolicy/gpu-operator/internal/freshness"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
)

// ErrConflict means that an object of the wanted name belongs to somebody else.
var ErrConflict = errors.New("belongs to somebody else")

// errLeaving means that an object still has an owner that is gone; the garbage collector removes it.
var errLeaving = errors.New("is still being removed with an earlier ClusterPolicy")

// Applier writes stack objects.
type Applier struct {
	// Client reads from the cache and writes.
	Client client.Client
	// Live reads from the API server, for objects that the cache does not hold.
	Live client.Reader
	// Seen tells whether the cache shows the last write.
	Seen *freshness.Tracker

	settled settled
}

// Apply makes the live object say what the intent says, and tells whether it wrote, or wrote so
// lately that the cache does not show it yet. It writes nothing if the live object carries the
// intent's digest and every leaf of the intent. An object that exists and is not owned by the policy
// with this UID is not touched: ErrConflict, unless it is as good as what is wanted.
func (a *Applier) Apply(ctx context.Context, owner types.UID, intent client.Object) (bool, error) {
	found, err := a.compare(ctx, owner, intent)
	if err != nil || !found.differs {
		return found.stale, err
	}
	log.FromContext(ctx).Info("Applying object", "object", describe(intent))
	err = a.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(found.desired),
		client.FieldOwner(labels.FieldOwner), client.ForceOwnership)
	if err != nil {
		return false, fmt.Errorf("applying %s: %w", describe(intent), err)
	}
	if found.live != nil && found.live.GetResourceVersion() == found.desired.GetResourceVersion() {
		// Somebody, a webhook for one, changes what was applied to what it was. No event will follow.
		return false, nil
	}
	a.Seen.Wrote(key(intent), found.desired.GetResourceVersion())
	return true, nil
}

// Differs tells whether Apply would write, and fails where it would fail before it does.
func (a *Applier) Differs(ctx context.Context, owner types.UID, intent client.Object) (bool, error) {
	found, err := a.compare(ctx, owner, intent)
	return found.differs, err
}

// comparison of an intent with the cluster.
type comparison struct {
	// desired is what is to be applied, live what the cluster has, or nil.
	desired *unstructured.Unstructured
	live    client.Object
	// differs: live lacks something of desired. stale: the cache does not show the last write yet.
	differs, stale bool
}

func (a *Applier) compare(ctx context.Context, owner types.UID, intent client.Object) (comparison, error) {
	live, err := a.live(ctx, intent)
	switch {
	case err != nil:
		return comparison{}, fmt.Errorf("reading %s: %w", describe(intent), err)
	case live != nil && a.Seen.Stale(key(intent), live.GetResourceVersion()):
		return comparison{stale: true}, nil
	case live != nil && a.settled.holds(owner, intent, live):
		return comparison{}, nil
	}
	found, err := compareWith(owner, intent, live)
	if err == nil && live != nil && !found.differs {
		a.settled.keep(owner, intent, live)
	}
	return found, err
}

// compareWith compares with the live object, which is nil if there is none.
func compareWith(owner types.UID, intent, live client.Object) (comparison, error) {
	desired, err := Intent(intent)
	switch {
	case err != nil:
		return comparison{}, err
	case live == nil:
		return comparison{desired: desired, differs: true}, nil
	case provided(owner, intent, live):
		return comparison{}, nil
	}
	if err := ours(owner, live); err != nil {
		return comparison{}, fmt.Errorf("%s %w", describe(intent), err)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
	if err != nil {
		return comparison{}, fmt.Errorf("converting live %s: %w", describe(intent), err)
	}
	return comparison{desired: desired, live: live, differs: !covers(desired.Object, content, "")}, nil
}

// live reads the object from the cache, and from the API server if the cache has none: the cache
// holds only what carries the operator's label. What it holds is not to be changed.
func (a *Applier) live(ctx context.Context, intent client.Object) (client.Object, error) {
	for _, reader := range []client.Reader{a.Client, a.Live} {
		object, isObject := reflect.New(reflect.TypeOf(intent).Elem()).Interface().(client.Object)
		if !isObject {
			return nil, fmt.Errorf("%T is no object of the API", intent)
		}
		err := reader.Get(ctx, client.ObjectKeyFromObject(intent), object, client.UnsafeDisableDeepCopy)
		if err == nil {
			// A read from the API server leaves them empty, and the intent has them.
			object.GetObjectKind().SetGroupVersionKind(intent.GetObjectKind().GroupVersionKind())
			return object, nil
		}
		if !apierrors.IsNotFound(err) {
			return nil, err
		}
	}
	return nil, nil //nolint:nilnil // No object and no error: it does not exist.
}

func ours(owner types.UID, live client.Object) error {
	controller := metav1.GetControllerOf(live)
	made := live.GetLabels()[labels.ManagedBy] == labels.ManagedByValue && live.GetLabels()[labels.Operand] != ""
	switch {
	case controller != nil && controller.UID == owner:
		return nil
	case controller == nil && made && live.GetAnnotations()[labels.Digest] != "":
		// Its policy was deleted with --cascade=orphan, to be made anew without unloading drivers.
		return nil
	case controller != nil && made:
		return errLeaving
	default:
		return fmt.Errorf("exists and %w: delete or rename it, or move it out of the way", ErrConflict)
	}
}

// Intent is the object as it is applied: without status and empty metadata, with its digest. It fails on an
// object that cannot be converted, which is a defect of the program.
func Intent(object client.Object) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("converting %s: %w", describe(object), err)
	}
	delete(content, "status")
	unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(content, "spec", "template", "metadata", "creationTimestamp")
	intent := &unstructured.Unstructured{Object: content}
	owners := intent.GetOwnerReferences()
	// Whose it is belongs to the cluster, not to the intent: the same spec gives the same digest.
	intent.SetOwnerReferences(nil)
	data, err := json.Marshal(intent.Object)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", describe(object), err)
	}
	intent.SetOwnerReferences(owners)
	annotations := intent.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	sum := sha256.Sum256(data)
	annotations[labels.Digest] = hex.EncodeToString(sum[:8])
	intent.SetAnnotations(annotations)
	return intent, nil
}

// describe names an object in errors and logs.
func describe(object client.Object) string {
	return object.GetObjectKind().GroupVersionKind().Kind + " " + object.GetName()
}
