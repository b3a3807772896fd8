package apply

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterpolicy/gpu-operator/internal/kube/drift"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// write is a rendered object that is about to be written, with its intent.
type write struct {
	rendered client.Object
	intent   *unstructured.Unstructured
	// attempt is equal for intents with the same content and owner.
	attempt string
}

func newWrite(owner types.UID, rendered client.Object) (write, error) {
	intent, err := Intent(rendered)
	if err != nil {
		return write{}, err
	}
	return write{
		rendered: rendered,
		intent:   intent,
		attempt:  string(owner) + " " + intent.GetAnnotations()[labels.Digest],
	}, nil
}

// target returns an object with the kind and the name of the intent alone, for a patch.
func (w *write) target() *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(w.intent.GroupVersionKind())
	object.SetNamespace(w.intent.GetNamespace())
	object.SetName(w.intent.GetName())
	return object
}

// sync compares the live object with the intent and writes it if they differ.
func (a *Applier) sync(ctx context.Context, c *call, owner types.UID, rendered client.Object) outcome {
	live, err := a.read(ctx, a.client, rendered)
	stale := live != nil && a.table.isStale(rendered, live)
	if live != nil && !stale {
		if seen := comparisonOf(owner, rendered, live); a.table.isInSync(seen) {
			return outcome{inSync: seen}
		}
	}
	w, failure := newWrite(owner, rendered)
	switch {
	case failure != nil:
		return outcome{Result: Result{Err: failure}}
	case stale:
		return a.lastOutcome(w)
	case live == nil && err == nil:
		if recorded := a.table.recordedAnswer(rendered, w.attempt); recorded != nil {
			return outcome{Result: Result{Err: recorded.err}, recorded: true}
		}
		live, err = a.read(ctx, a.live, rendered)
	}
	if err != nil {
		return outcome{Result: Result{Err: err}, attempt: w.attempt, failed: true}
	}
	return a.writeIfDifferent(ctx, c, owner, w, live)
}

// read is the function read, with the deadline of a call.
func (a *Applier) read(
	ctx context.Context, reader client.Reader, rendered client.Object,
) (live client.Object, err error) {
	err = a.request(ctx, "reading "+describe(rendered), func(ctx context.Context) error {
		live, err = read(ctx, reader, rendered)
		return err
	})
	return live, err
}

// lastOutcome returns the outcome of the last write, while the cache does not show it yet.
func (a *Applier) lastOutcome(w write) outcome {
	if last := a.table.lastError(w.rendered, w.attempt); last != nil {
		return outcome{Result: Result{Err: last}, recorded: true}
	}
	return outcome{Result: Result{Wrote: true}}
}

// writeIfDifferent writes the object if it differs from the live one, which is nil if it does not exist.
func (a *Applier) writeIfDifferent(ctx context.Context, c *call, owner types.UID, w write, live client.Object) outcome {
	field, err := compare(owner, w, live)
	switch {
	case err != nil:
		return outcome{Result: Result{Err: err}, attempt: w.attempt}
	case field == nil:
		return outcome{inSync: comparisonOf(owner, w.rendered, live), attempt: w.attempt}
	}
	if recorded := a.table.recordedAnswer(w.rendered, w.attempt); recorded != nil && recorded.err != nil {
		return outcome{Result: Result{Err: recorded.err}, recorded: true}
	}
	last := a.table.startAttempt(c, w.attempt)
	if last == nil {
		log.FromContext(ctx).Info("Applying object", "object", describe(w.rendered))
	}
	found := a.apply(ctx, w, live, field)
	altered := (*AlteredError)(nil)
	if errors.As(found.Err, &altered) && (last == nil || last.Error() != altered.Error()) {
		log.FromContext(ctx).Info("An admission webhook, a policy or another field manager changes an applied object",
			"object", altered.Object, "field", altered.Field, "manager", altered.Manager)
	}
	return found
}

// apply writes the object and compares the answer with it. field is the difference of the live object.
func (a *Applier) apply(ctx context.Context, w write, live client.Object, field drift.Path) outcome {
	if err := a.takeOver(ctx, w, live); err != nil {
		return outcome{Result: Result{Err: err}, attempt: w.attempt, failed: true}
	}
	answer := w.intent.DeepCopy()
	err := a.request(ctx, "applying "+describe(w.rendered), func(ctx context.Context) error {
		return a.client.Apply(
			ctx, client.ApplyConfigurationFromUnstructured(answer), client.FieldOwner(labels.FieldOwner), client.ForceOwnership,
		)
	})
	managed := answer.GetManagedFields()
	if found := drift.Additions(w.intent, answer.Object); err == nil && live != nil && len(found) > 0 {
		answer, err = a.removeAdditions(ctx, w, answer.GetResourceVersion(), found)
	}
	if err != nil {
		return outcome{Result: Result{Err: err}, attempt: w.attempt, failed: true}
	}
	version := answer.GetResourceVersion()
	altered := drift.First(w.intent, answer.Object)
	if altered == nil && live != nil && live.GetResourceVersion() == version {
		// The write did not change the object: it still differs.
		altered = field
	}
	if altered == nil {
		repair := drift.RepairOf(w.intent, live, field, managed)
		return outcome{Result: Result{Wrote: true, Repair: repair}, version: version}
	}
	err = &AlteredError{
		Object:  describe(w.rendered),
		Field:   altered.String(),
		Manager: drift.ManagerOf(altered, answer.GetManagedFields()),
	}
	return outcome{Result: Result{Err: err}, attempt: w.attempt, failed: true, version: version}
}

// removeAdditions removes the fields from the object, guarded by its resource version, and returns the result. An apply
// alone leaves fields that it does not own.
func (a *Applier) removeAdditions(
	ctx context.Context, w write, version string, found []drift.Path,
) (*unstructured.Unstructured, error) {
	body, err := drift.RemovalPatch(version, found)
	if err != nil {
		return nil, fmt.Errorf("encoding a patch of %s: %w", describe(w.rendered), err)
	}
	answer := w.target()
	err = a.request(ctx, "patching "+describe(w.rendered), func(ctx context.Context) error {
		return a.client.Patch(ctx, answer, client.RawPatch(types.JSONPatchType, body), client.FieldOwner(labels.FieldOwner))
	})
	return answer, err
}
