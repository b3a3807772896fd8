package apply

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/csaupgrade"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// takeOver makes the fields of a live object that NVIDIA's operator has written those of this operator's applies. The
// next apply then removes what its intent does not have, such as NVIDIA's containers and variables; it would keep the
// fields of another manager. Nothing but metadata.managedFields changes, so no pod is replaced for it. It does nothing
// with objects that NVIDIA's operator has not written: it has left its digest on them, or this operator has never
// applied them.
func (a *Applier) takeOver(ctx context.Context, w write, live client.Object) error {
	if live == nil || live.GetAnnotations()[labels.NVIDIAHash] == "" && labels.IsApplied(live) {
		return nil
	}
	// Caches have no managed fields.
	live, err := a.read(ctx, a.live, w.rendered)
	if err != nil || live == nil {
		return err
	}
	body, err := csaupgrade.UpgradeManagedFieldsPatch(live, sets.New(labels.NVIDIAFieldManager), labels.FieldOwner)
	switch {
	case err != nil:
		return fmt.Errorf("taking over the fields of %s: %w", describe(w.rendered), err)
	case len(body) == 0:
		return nil
	}
	return a.request(ctx, "taking over the fields of "+describe(w.rendered), func(ctx context.Context) error {
		return a.client.Patch(ctx, w.target(), client.RawPatch(types.JSONPatchType, body))
	})
}
