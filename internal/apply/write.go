package apply

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
)

// write is what there is to write for an intent.
type write struct {
	intent  client.Object
	desired *unstructured.Unstructured
	// attempt is the same for intents that ask for the same.
	attempt string
}

func writeOf(owner types.UID, intent client.Object) (write, error) {
	desired, err := Intent(intent)
	if err != nil {
		return write{}, err
	}
	return write{intent: intent, desired: desired, attempt: string(owner) + " " + desired.GetAnnotations()[labels.Digest]}, nil
}

// visit compares an object with its intent and writes it where they differ.
func (a *Applier) visit(ctx context.Context, c *call, owner types.UID, intent client.Object) outcome {
	live, err := a.read(ctx, a.client, intent)
	stale := live != nil && a.table.stale(intent, live)
	if live != nil && !stale {
		if look := settledOf(owner, intent, live); a.table.holds(look) {
			return outcome{settled: look}
		}
	}
	w, failure := writeOf(owner, intent)
	switch {
	case failure != nil:
		return outcome{Result: Result{Err: failure}}
	case stale:
		return a.written(w)
	case live == nil && err == nil:
		if held := a.table.held(intent, w.attempt); held != nil {
			return outcome{Result: Result{Err: held.err}, recorded: true}
		}
		live, err = a.read(ctx, a.live, intent)
	}
	if err != nil {
		return outcome{Result: Result{Err: err}, attempt: w.attempt, failed: true}
	}
	return a.follow(ctx, c, owner, w, live)
}

// read reads as the function read does, with the deadline of a call.
func (a *Applier) read(ctx context.Context, reader client.Reader, intent client.Object) (live client.Object, err error) {
	err = a.ask(ctx, "reading "+describe(intent), func(ctx context.Context) error {
		live, err = read(ctx, reader, intent)
		return err
	})
	return live, err
}

// written is the outcome where the cache does not show the last write yet: what came of that.
func (a *Applier) written(w write) outcome {
	if last := a.table.last(w.intent, w.attempt); last != nil {
		return outcome{Result: Result{Err: last}, recorded: true}
	}
	return outcome{Result: Result{Wrote: true}}
}

// follow writes the object if the live one, nil where there is none, lacks something of it.
func (a *Applier) follow(ctx context.Context, c *call, owner types.UID, w write, live client.Object) outcome {
	field, err := compare(owner, w, live)
	switch {
	case err != nil:
		return outcome{Result: Result{Err: err}, attempt: w.attempt}
	case field == nil:
		return outcome{settled: settledOf(owner, w.intent, live), attempt: w.attempt}
	}
	if held := a.table.held(w.intent, w.attempt); held != nil && held.err != nil {
		return outcome{Result: Result{Err: held.err}, recorded: true}
	}
	last := a.table.tries(c, w.attempt)
	if last == nil {
		log.FromContext(ctx).Info("Applying object", "object", describe(w.intent))
	}
	found := a.apply(ctx, w, live, field)
	if altered := (*AlteredError)(nil); errors.As(found.Err, &altered) && (last == nil || last.Error() != altered.Error()) {
		log.FromContext(ctx).Info("What was applied came back altered", "object", altered.Object, "field", altered.Field, "manager", altered.Manager)
	}
	return found
}

// apply writes the object and compares the answer with it. field is where the live object differs.
func (a *Applier) apply(ctx context.Context, w write, live client.Object, field path) outcome {
	answer := w.desired.DeepCopy()
	err := a.ask(ctx, "applying "+describe(w.intent), func(ctx context.Context) error {
		return a.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(answer), client.FieldOwner(labels.FieldOwner), client.ForceOwnership)
	})
	managed := answer.GetManagedFields()
	if found := additions(w, answer.Object); err == nil && live != nil && len(found) > 0 {
		answer, err = a.takeOff(ctx, w, answer.GetResourceVersion(), found)
	}
	if err != nil {
		return outcome{Result: Result{Err: err}, attempt: w.attempt, failed: true}
	}
	version := answer.GetResourceVersion()
	altered := exact(w, answer.Object)
	if altered == nil && live != nil && live.GetResourceVersion() == version {
		// The write has left the object as it was found, different.
		altered = field
	}
	if altered == nil {
		return outcome{Result: Result{Wrote: true, Repair: drift(w, live, field, managed)}, version: version}
	}
	err = &AlteredError{Object: describe(w.intent), Field: altered.String(), Manager: managerOf(altered, answer.GetManagedFields())}
	return outcome{Result: Result{Err: err}, attempt: w.attempt, failed: true, version: version}
}
