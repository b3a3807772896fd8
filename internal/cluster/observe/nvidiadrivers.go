package observe

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/config/crd"
	"github.com/clusterpolicy/gpu-operator/internal/kube/notify"
	"github.com/clusterpolicy/gpu-operator/internal/kube/optional"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// NVIDIADrivers watches the objects of the kind NVIDIADriver while the cluster has its CRD. A manager must run Start.
type NVIDIADrivers struct {
	*optional.Watch
	cache   cache.Cache
	changed notify.Signal
}

// NewNVIDIADrivers returns an NVIDIADrivers that is not started. own reports whether the status of an object is the one
// that the operator has written; nil if it writes none.
func NewNVIDIADrivers(
	objects cache.Cache, mapper meta.RESTMapper, clk clock.Clock, own func(*v1alpha1.NVIDIADriver) bool,
) *NVIDIADrivers {
	changed := notify.New()
	kind := &v1alpha1.NVIDIADriver{TypeMeta: metav1.TypeMeta{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.NVIDIADriverKind.Kind,
	}}
	return &NVIDIADrivers{cache: objects, changed: changed, Watch: optional.New(optional.Options{
		Object: kind, Cache: objects, Mapper: mapper, Clock: clk, Changed: changed,
		Differs: func(before, after any) bool {
			old, isOld := before.(*v1alpha1.NVIDIADriver)
			updated, isNew := after.(*v1alpha1.NVIDIADriver)
			return !isOld || !isNew || driversDiffer(own, old, updated)
		},
	})}
}

// driversDiffer reports whether an update is a change. That of the status is one unless the operator has made it: the
// status is written again. The generation alone does not suffice, as for a policy: around an update of the CRD, a later
// event may have fields of the same spec that the first one did not have.
func driversDiffer(own func(*v1alpha1.NVIDIADriver) bool, before, after *v1alpha1.NVIDIADriver) bool {
	return before.Generation != after.Generation || before.UID != after.UID ||
		before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
		before.Annotations[labels.Undecodable] != after.Annotations[labels.Undecodable] ||
		!equality.Semantic.DeepEqual(before.Spec, after.Spec) ||
		!equality.Semantic.DeepEqual(before.Status, after.Status) && (own == nil || !own(after))
}

// Events returns a channel that has an event when the result of Read may have changed, for one receiver.
func (d *NVIDIADrivers) Events() <-chan event.GenericEvent { return d.changed.Events() }

// Read returns the objects, given the CRDs of the cluster. If there may be objects that cannot be read, unread says why
// and what to do.
func (d *NVIDIADrivers) Read(
	ctx context.Context, crds map[string]bool,
) (objects []v1alpha1.NVIDIADriver, unread string, err error) {
	const absent = "the cluster has no CRD " + crd.NVIDIADriverName + ": install it"
	if !crds[crd.NVIDIADriverName] {
		return nil, absent, d.StopWatch(ctx)
	}
	state, err := d.EnsureWatch(ctx)
	switch {
	case err != nil:
		return nil, "", fmt.Errorf("watching NVIDIADrivers: %w", err)
	case state != optional.Served || !d.Synced(ctx):
		return nil, "the API server does not list NVIDIADrivers yet: see the log of the operator", nil
	}
	list := &v1alpha1.NVIDIADriverList{}
	if err := d.cache.List(ctx, list); err != nil {
		return nil, "", fmt.Errorf("listing NVIDIADrivers: %w", err)
	}
	return list.Items, "", nil
}

// StopWatch stops the watch.
func (d *NVIDIADrivers) StopWatch(ctx context.Context) error {
	if err := d.Watch.StopWatch(ctx); err != nil {
		return fmt.Errorf("stopping the watch of NVIDIADrivers: %w", err)
	}
	return nil
}
